//! `'…'.format([…])`, modelled on version 2 of cel-go's `strings` library with the English locale.

use std::sync::Arc;

use super::conversions;
use super::meter::{Meter, weight};
use super::values::{EvalFailure, Evaluated};
use crate::api::field::quote;
use crate::registry::cel::library::type_name;
use crate::registry::cel::objects::{Key, Value as CelValue};

/// Default number of digits after the decimal point.
const PRECISION: usize = 6;

/// Maximum number of digits after the decimal point, and maximum width of NaN and infinity.
const PRECISION_MAX: usize = 1_000;

/// Replaces the clauses of a format string with the formatted arguments.
pub(super) fn call(text: &str, args: &[CelValue], meter: &mut Meter) -> Evaluated {
    let mut made = String::with_capacity(text.len());
    let (mut rest, mut next) = (text, 0);
    while let Some(at) = rest.find('%') {
        made.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            made.push('%');
            rest = after;
            continue;
        }
        let Some(arg) = args.get(next) else {
            return fail(format!("index {next} out of range"));
        };
        next += 1;
        meter.work(weight(arg, usize::MAX / 2))?;
        let (shown, length) = match clause(rest, arg) {
            Ok(shown) => shown,
            Err(error) => return fail(error),
        };
        meter.work(shown.len() / 16)?;
        made.push_str(&shown);
        rest = &rest[length..];
    }
    made.push_str(rest);
    Ok(CelValue::String(Arc::new(made)))
}

fn fail(error: String) -> Evaluated {
    Err(EvalFailure::Error(error))
}

/// Formats an argument according to a clause. Returns the result and the length of the clause.
fn clause(text: &str, arg: &CelValue) -> Result<(String, usize), String> {
    let mut precision = None;
    let mut length = 0;
    if let Some(digits) = text.strip_prefix('.') {
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        precision = digits[..count].parse::<usize>().ok();
        length = count + 1;
    }
    let Some(verb) = text[length..].chars().next() else {
        return Err("unexpected end of string".to_owned());
    };
    let precision = precision.unwrap_or(PRECISION).min(PRECISION_MAX);
    let shown = match verb {
        's' => string(arg),
        'd' => decimal(arg),
        'f' => fixed(arg, precision),
        'e' => scientific(arg, precision),
        'b' => binary(arg),
        'x' => hex(arg).map(|it| it.to_ascii_lowercase()),
        'X' => hex(arg),
        'o' => octal(arg),
        other => {
            let error = format!("unrecognized formatting clause \"{other}\"");
            return Err(format!("could not parse formatting clause: {error}"));
        }
    };
    match shown {
        Ok(shown) => Ok((shown, length + verb.len_utf8())),
        Err(error) => Err(format!("error during formatting: {error}")),
    }
}

fn given(text: &str, arg: &CelValue) -> String {
    format!("{text}, was given {}", type_name(arg))
}

fn string(arg: &CelValue) -> Result<String, String> {
    match arg {
        CelValue::List(_) | CelValue::Map(_) => literal(arg),
        CelValue::Null => Ok("null".to_owned()),
        CelValue::Opaque(_) => Err(given(
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and \
             timestamps",
            arg,
        )),
        other => plain(other),
    }
}

/// Formats a scalar without quotation marks.
fn plain(arg: &CelValue) -> Result<String, String> {
    if let Some(name) = type_of_type(arg) {
        return Ok(name);
    }
    match conversions::call("string", arg) {
        Some(Ok(CelValue::String(text))) => Ok(text.to_string()),
        Some(Err(EvalFailure::Error(error))) => Err(format!("could not convert argument {} to string", quote(&error))),
        _ => Err("could not convert argument to string".to_owned()),
    }
}

/// Returns the name of a type; `None` if the value is not a type.
fn type_of_type(arg: &CelValue) -> Option<String> {
    let is_type = type_name(arg) == "type";
    match (is_type, arg) {
        (true, CelValue::String(text)) => text.split_once(' ').map(|(_, name)| name.to_owned()),
        _ => None,
    }
}

/// Formats a value as a CEL literal.
fn literal(arg: &CelValue) -> Result<String, String> {
    Ok(match arg {
        CelValue::List(items) => {
            let items: Vec<String> = items.iter().map(literal).collect::<Result<_, _>>()?;
            format!("[{}]", items.join(", "))
        }
        CelValue::Map(map) => {
            let mut pairs = Vec::with_capacity(map.map.len());
            for (key, value) in map.map.iter() {
                let key = match key {
                    Key::String(key) => quote(key),
                    other => plain(&CelValue::from(other))?,
                };
                pairs.push((key, literal(value)?));
            }
            pairs.sort();
            let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        CelValue::Duration(_) => format!("duration({})", quote(&plain(arg)?)),
        CelValue::Timestamp(_) => format!("timestamp({})", quote(&plain(arg)?)),
        CelValue::Float(number) if number.is_finite() => format!("{number:.6}"),
        CelValue::Float(number) => quote(&conversions::float(*number)),
        CelValue::Bytes(_) => format!("b{}", quote(&plain(arg)?)),
        CelValue::String(text) if type_of_type(arg).is_none() => quote(text),
        CelValue::Null => "null".to_owned(),
        CelValue::Opaque(_) => return Err(format!("no formatting function for {}", type_name(arg))),
        other => plain(other)?,
    })
}

fn decimal(arg: &CelValue) -> Result<String, String> {
    match arg {
        CelValue::Int(number) => Ok(number.to_string()),
        CelValue::UInt(number) => Ok(number.to_string()),
        other => Err(given("decimal clause can only be used on integers", other)),
    }
}

/// Returns the number to format. Converts the strings for NaN and infinity.
fn number(arg: &CelValue, clause: &str) -> Result<f64, String> {
    match arg {
        CelValue::Float(number) => Ok(*number),
        CelValue::String(text) if **text == "NaN" => Ok(f64::NAN),
        CelValue::String(text) if **text == "Infinity" => Ok(f64::INFINITY),
        CelValue::String(text) if **text == "-Infinity" => Ok(f64::NEG_INFINITY),
        other => Err(given(&format!("{clause} clause can only be used on doubles"), other)),
    }
}

fn endless(number: f64) -> &'static str {
    match number {
        _ if number.is_nan() => "NaN",
        _ if number > 0.0 => "∞",
        _ => "-∞",
    }
}

fn fixed(arg: &CelValue, precision: usize) -> Result<String, String> {
    let number = number(arg, "fixed-point")?;
    if !number.is_finite() {
        return Ok(endless(number).to_owned());
    }
    let shown = format!("{:.precision$}", number.abs());
    let (whole, fraction) = match shown.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (shown.as_str(), String::new()),
    };
    let mut grouped = String::with_capacity(whole.len() * 4 / 3);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let sign = if number.is_sign_negative() { "-" } else { "" };
    Ok(format!("{sign}{grouped}{fraction}"))
}

/// Formats a number in scientific notation with six digits after the decimal point. The precision of the clause is only
/// used as the width of NaN and infinity.
fn scientific(arg: &CelValue, width: usize) -> Result<String, String> {
    let number = number(arg, "scientific")?;
    if !number.is_finite() {
        return Ok(format!("{:>width$}", endless(number)));
    }
    let shown = format!("{number:.6e}");
    let (digits, exponent) = shown.split_once('e').unwrap_or((&shown, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ("⁻", exponent),
        None => ("", exponent),
    };
    let small = |digit: char| match digit.to_digit(10) {
        Some(1) => '¹',
        Some(2) => '²',
        Some(3) => '³',
        Some(digit) => char::from_u32(0x2070 + digit).unwrap_or('⁰'),
        None => digit,
    };
    let exponent: String = format!("{exponent:0>2}").chars().map(small).collect();
    Ok(format!("{digits}×10{sign}{exponent}"))
}

fn binary(arg: &CelValue) -> Result<String, String> {
    match arg {
        CelValue::Int(number) => Ok(signed(*number, |it| format!("{it:b}"))),
        CelValue::UInt(number) => Ok(format!("{number:b}")),
        CelValue::Bool(flag) => Ok(u8::from(*flag).to_string()),
        other => Err(given("only integers and bools can be formatted as binary", other)),
    }
}

fn octal(arg: &CelValue) -> Result<String, String> {
    match arg {
        CelValue::Int(number) => Ok(signed(*number, |it| format!("{it:o}"))),
        CelValue::UInt(number) => Ok(format!("{number:o}")),
        other => Err(given("octal clause can only be used on integers", other)),
    }
}

fn hex(arg: &CelValue) -> Result<String, String> {
    let of_bytes = |bytes: &[u8]| bytes.iter().map(|it| format!("{it:02X}")).collect();
    match arg {
        CelValue::Int(number) => Ok(signed(*number, |it| format!("{it:X}"))),
        CelValue::UInt(number) => Ok(format!("{number:X}")),
        CelValue::String(text) if type_of_type(arg).is_none() => Ok(of_bytes(text.as_bytes())),
        CelValue::Bytes(bytes) => Ok(of_bytes(bytes)),
        other => {
            let text = "only integers, byte buffers, and strings can be formatted as hex";
            Err(given(text, other))
        }
    }
}

fn signed(number: i64, show: impl Fn(u64) -> String) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", show(number.unsigned_abs()))
}
