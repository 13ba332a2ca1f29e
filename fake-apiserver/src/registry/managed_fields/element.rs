//! One element of a field path, its order, and its encoding in `fieldsV1` (rule H9).

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde_json::Number;

use crate::api::field::quote;
use crate::api::json::{Map, Value, plain_len};

/// One step of a field path. Borrows from the compared objects if possible.
#[derive(Clone, Debug)]
pub(super) enum Element<'a> {
    /// A field of an object or an entry of a map: `f:name`.
    Field(Cow<'a, str>),
    /// The list item with these key fields, sorted by name: `k:{"name":"x"}`.
    Key(Vec<(Cow<'a, str>, Cow<'a, Value>)>),
    /// The item of a set with this value: `v:"x"`.
    Value(Cow<'a, Value>),
    /// The list item at this index: `i:0`.
    Index(i64),
}

/// Error for a `fieldsV1` that cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadFields;

impl<'a> Element<'a> {
    /// Returns the element of a field or map entry with this name.
    pub(super) fn field(name: &'a str) -> Self {
        Element::Field(Cow::Borrowed(name))
    }

    /// Parses a `fieldsV1` key; `None` for an unknown element type, which is dropped.
    pub(super) fn parse(text: &'a str) -> Result<Option<Self>, BadFields> {
        let Some((kind, rest)) = text.split_at_checked(2) else {
            return Err(BadFields);
        };
        match kind {
            "f:" => Ok(Some(Element::field(rest))),
            "v:" => {
                let value = serde_json::from_str(rest).map_err(|_| BadFields)?;
                Ok(Some(Element::Value(Cow::Owned(value))))
            }
            "k:" => {
                let keys: Map = serde_json::from_str(rest).map_err(|_| BadFields)?;
                let keys = keys.into_iter().map(|(k, v)| (Cow::Owned(k.into()), Cow::Owned(v)));
                Ok(Some(Element::Key(keys.collect())))
            }
            "i:" => rest
                .parse()
                .map(|index| Some(Element::Index(index)))
                .map_err(|_| BadFields),
            other if other.ends_with(':') => Ok(None),
            _ => Err(BadFields),
        }
    }

    /// Appends the element as a `fieldsV1` key.
    pub(super) fn write(&self, out: &mut String) {
        match self {
            Element::Field(name) => {
                out.reserve("f:".len() + name.len());
                out.push_str("f:");
                out.push_str(name);
            }
            Element::Key(keys) => {
                // The rest of the key usually consists of a name and a short string.
                out.reserve(32);
                out.push_str("k:{");
                for (i, (name, value)) in keys.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    write_string(name, out);
                    out.push(':');
                    write_value(value, out);
                }
                out.push('}');
            }
            Element::Value(value) => {
                out.push_str("v:");
                write_value(value, out);
            }
            Element::Index(index) => {
                out.push_str("i:");
                out.push_str(&index.to_string());
            }
        }
    }

    /// Returns the element without borrowed data.
    pub(super) fn into_owned(self) -> Element<'static> {
        match self {
            Element::Field(name) => Element::Field(Cow::Owned(name.into_owned())),
            Element::Key(keys) => Element::Key(
                keys.into_iter()
                    .map(|(k, v)| (Cow::Owned(k.into_owned()), Cow::Owned(v.into_owned())))
                    .collect(),
            ),
            Element::Value(value) => Element::Value(Cow::Owned(value.into_owned())),
            Element::Index(index) => Element::Index(index),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Element::Field(_) => 0,
            Element::Key(_) => 1,
            Element::Value(_) => 2,
            Element::Index(_) => 3,
        }
    }
}

/// Characters that Go's encoder escapes although JSON does not require it.
const ESCAPED_FOR_HTML: [char; 5] = ['<', '>', '&', '\u{2028}', '\u{2029}'];

/// Returns `false` if the string certainly contains none of these characters.
fn may_be_escaped_for_html(text: &str) -> bool {
    // The first byte of the characters that are not ASCII is 0xe2.
    text.as_bytes()
        .iter()
        .any(|byte| matches!(byte, b'<' | b'>' | b'&' | 0xe2))
}

/// Writes a string like Go's encoder, which escapes characters that are special in HTML.
fn write_string(text: &str, out: &mut String) {
    if plain_len(text.as_bytes()) == text.len() && !may_be_escaped_for_html(text) {
        out.reserve(text.len() + "\"\"".len());
        out.push('"');
        out.push_str(text);
        return out.push('"');
    }
    let start = out.len();
    match serde_json::to_string(text) {
        Ok(json) => out.push_str(&json),
        Err(_) => out.push_str("\"\""),
    }
    if out[start..].contains(ESCAPED_FOR_HTML) {
        let json = out.split_off(start);
        for c in json.chars() {
            match c {
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => out.push(c),
            }
        }
    }
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => write_string(text, out),
        Value::Number(number) => out.push_str(&print_number(number)),
        other => out.push_str(&other.to_string()),
    }
}

/// Formats a number like Go: a float without a fraction is printed as an integer.
pub(super) fn print_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => format!("{float:.0}"),
        _ => number.to_string(),
    }
}

impl fmt::Display for Element<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Key(keys) => {
                f.write_str("[")?;
                for (i, (name, value)) in keys.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", print_value(value))?;
                }
                f.write_str("]")
            }
            Element::Value(value) => write!(f, "[={}]", print_value(value)),
            Element::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Formats a value as part of a field path.
fn print_value(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(it) => it.to_string(),
        Value::Number(it) => print_number(it),
        Value::String(it) => quote(it),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(print_value).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(map) => map.iter().map(|(k, v)| format!("{k}={}", print_value(v))).collect(),
    }
}

impl PartialEq for Element<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element<'_> {}

impl PartialOrd for Element<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Element<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Element::Field(a), Element::Field(b)) => a.cmp(b),
            (Element::Key(a), Element::Key(b)) => {
                let pairs = a.iter().zip(b.iter());
                let mut orders = pairs.map(|((ak, av), (bk, bv))| ak.cmp(bk).then_with(|| compare_values(av, bv)));
                let first = orders.find(|order| *order != Ordering::Equal);
                first.unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            (Element::Value(a), Element::Value(b)) => compare_values(a, b),
            (Element::Index(a), Element::Index(b)) => a.cmp(b),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }
}

fn value_rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Compares values in a total order. Integers and floats are compared by their numeric value.
pub(super) fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let mut orders = a.iter().zip(b).map(|(a, b)| compare_values(a, b));
            let first = orders.find(|order| *order != Ordering::Equal);
            first.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let mut orders = a
                .iter()
                .zip(b)
                .map(|((ak, av), (bk, bv))| ak.cmp(bk).then_with(|| compare_values(av, bv)));
            let first = orders.find(|order| *order != Ordering::Equal);
            first.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (a, b) => value_rank(a).cmp(&value_rank(b)),
    }
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (a.as_i64(), b.as_i64(), a.as_u64(), b.as_u64()) {
        (Some(a), Some(b), _, _) => a.cmp(&b),
        (_, _, Some(a), Some(b)) => a.cmp(&b),
        _ => a
            .as_f64()
            .unwrap_or_default()
            .total_cmp(&b.as_f64().unwrap_or_default()),
    }
}

/// Returns `true` if two values are equal. Numbers are compared by their numeric value.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || compare_numbers(a, b) == Ordering::Equal,
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((ak, av), (bk, bv))| ak == bk && same(av, bv))
        }
        (a, b) => a == b,
    }
}
