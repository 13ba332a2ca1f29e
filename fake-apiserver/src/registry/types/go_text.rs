//! Formats values like Go's `%v`, and returns their Go types, for error messages.

use std::fmt::Write as _;

use crate::api::json::Value;

/// Formats a value like `%v`: `map[a:1 b:[x y]]`.
pub(crate) fn go_text(value: &Value) -> String {
    let mut out = String::new();
    write_text(value, &mut out);
    out
}

fn write_text(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(it) => {
            let _ = write!(out, "{it}");
        }
        Value::Number(it) => match it.as_f64().filter(|_| it.is_f64()) {
            Some(float) => out.push_str(&float_text(float)),
            None => {
                let _ = write!(out, "{it}");
            }
        },
        Value::String(it) => out.push_str(it),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                write_text(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("map[");
            for (i, (key, value)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(' ');
                }
                out.push_str(key);
                out.push(':');
                write_text(value, out);
            }
            out.push(']');
        }
    }
}

/// Formats a float like `%v`: with an exponent if its absolute value is below 1e-4, or 1e6 and above.
fn float_text(float: f64) -> String {
    let size = float.abs();
    if size != 0.0 && !(1e-4..1e6).contains(&size) {
        let text = format!("{float:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(rest) => ('-', rest),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{float}")
}

/// Returns the Go type into which a value is decoded.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(it) if it.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}
