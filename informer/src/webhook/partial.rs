//! Decodes partial objects, which lack required fields, and removes the substituted values afterwards.
//!
//! For server-side apply, the server converts the fields of each field manager separately. The resulting objects lack
//! fields that their Rust types require. Go decodes such fields as zero values, and conversions copy these values to
//! the result, so that the manager then owns the fields. In this crate, such an object is converted twice, with
//! different values for each missing field: fields that differ between the two results were derived from missing
//! fields, and are removed.

use serde::de::DeserializeOwned;
use serde_json::{Error, Map, Value, json};

/// Maximum number of missing fields in an object.
const MISSING_MAX: usize = 256;

/// Selects the values to substitute for missing fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StandIn {
    /// The zero values of Go, if the type accepts them.
    Zero,
    Other,
}

impl StandIn {
    /// Returns the values to try. The first value that the type accepts is used.
    fn values(self) -> Vec<Value> {
        let all = match self {
            Self::Zero => json!([null, "", 0, false, [], {}, "1970-01-01T00:00:00Z"]),
            Self::Other => json!([null, "x", 1, true, ["x"], [1], [{}], [], {"x": "x"}, {}, "1970-01-02T00:00:00Z"]),
        };
        match all {
            Value::Array(all) => all,
            other => vec![other],
        }
    }
}

/// Decodes an object. Also returns `true` if required fields were missing and values were substituted for them.
pub(super) fn decode<A: DeserializeOwned>(object: &Value, stand_in: StandIn) -> Result<(A, bool), String> {
    let mut whole = object.clone();
    for count in 0..=MISSING_MAX {
        let fault = match read::<A>(&whole) {
            Ok(typed) => return Ok((typed, count > 0)),
            Err(fault) => fault,
        };
        whole = filled::<A>(&whole, &fault, stand_in).ok_or_else(|| fault.error.to_string())?;
    }
    Err(format!("more than {MISSING_MAX} required fields are missing"))
}

/// Error from decoding an object.
struct Fault {
    error: Error,
    /// Name of the missing field, and JSON pointer to the object that lacks it.
    missing: Option<(String, String)>,
}

fn read<A: DeserializeOwned>(object: &Value) -> Result<A, Fault> {
    let text = object.to_string();
    serde_json::from_str(&text).map_err(|error| {
        let missing = quoted(&error.to_string(), "missing field `").map(str::to_owned);
        // serde_json reports a missing field at the end of the object that lacks it.
        let pointer = object_ending_at(object, &mut 0, error.column(), String::new());
        Fault {
            missing: missing.zip(pointer),
            error,
        }
    })
}

/// Returns the string in backticks that follows `prefix`, which ends with the opening backtick.
fn quoted<'a>(message: &'a str, prefix: &str) -> Option<&'a str> {
    let (_, rest) = message.split_once(prefix)?;
    rest.split('`').next()
}

/// Inserts a value for the missing field. Returns `None` if the error is not about a missing field, or if the type does
/// not accept any of the values.
fn filled<A: DeserializeOwned>(object: &Value, fault: &Fault, stand_in: StandIn) -> Option<Value> {
    let (field, pointer) = fault.missing.as_ref()?;
    let mut values = stand_in.values();
    let mut next = 0;
    while let Some(value) = values.get(next).cloned() {
        next += 1;
        let mut whole = object.clone();
        whole
            .pointer_mut(pointer)?
            .as_object_mut()?
            .insert(field.clone(), value);
        match read::<A>(&whole) {
            Ok(_) => return Some(whole),
            // This value is accepted if only another field is missing, which may be within the value.
            Err(it) if it.missing.is_some() && it.missing != fault.missing => return Some(whole),
            Err(it) => {
                let message = it.error.to_string();
                if message.contains("unknown variant `") {
                    let names = message.split_once("expected").map_or("", |(_, names)| names);
                    let mut names: Vec<_> = names.split('`').skip(1).step_by(2).collect();
                    if stand_in == StandIn::Other {
                        names.reverse();
                    }
                    let known: Vec<_> = values.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                    let names = names.into_iter().filter(|it| !known.iter().any(|known| known == it));
                    values.extend(names.map(Value::from));
                }
            }
        }
    }
    None
}

/// Returns the JSON pointer of the object that ends at offset `end`. `at` is the offset at which the text of `value`
/// begins; this function advances it to the end of this text.
fn object_ending_at(value: &Value, at: &mut usize, end: usize, pointer: String) -> Option<String> {
    match value {
        Value::Object(fields) => {
            *at += 1;
            for (number, (name, value)) in fields.iter().enumerate() {
                *at += usize::from(number > 0) + Value::from(name.as_str()).to_string().len() + 1;
                let step = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
                let found = object_ending_at(value, at, end, step);
                if found.is_some() {
                    return found;
                }
            }
            *at += 1;
            (*at == end).then_some(pointer)
        }
        Value::Array(items) => {
            *at += 1;
            for (number, item) in items.iter().enumerate() {
                *at += usize::from(number > 0);
                let found = object_ending_at(item, at, end, format!("{pointer}/{number}"));
                if found.is_some() {
                    return found;
                }
            }
            *at += 1;
            None
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            *at += value.to_string().len();
            None
        }
    }
}

/// Returns the parts that two results have in common; `None` if they differ completely.
pub(super) fn common(one: Value, other: Value) -> Option<Value> {
    match (one, other) {
        (Value::Object(one), Value::Object(mut other)) => {
            let was_empty = one.is_empty() && other.is_empty();
            let fields: Map<_, _> = one
                .into_iter()
                .filter_map(|(name, value)| Some((name.clone(), common(value, other.remove(&name)?)?)))
                .collect();
            (was_empty || !fields.is_empty()).then_some(Value::Object(fields))
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let was_empty = one.is_empty();
            let pairs = one.into_iter().zip(other);
            let items: Vec<_> = pairs.filter_map(|(one, other)| common(one, other)).collect();
            (was_empty || !items.is_empty()).then_some(Value::Array(items))
        }
        (one, other) => (one == other).then_some(one),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, Deserialize, Serialize)]
    enum Color {
        Red,
        Blue,
    }

    #[derive(Debug, Deserialize, Serialize)]
    struct Part {
        name: String,
        size: u32,
    }

    #[derive(Debug, Deserialize, Serialize)]
    struct Whole {
        title: String,
        color: Color,
        parts: Vec<Part>,
        labels: BTreeMap<String, String>,
        main: Part,
        at: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time,
        #[serde(default)]
        is_open: bool,
    }

    fn through(object: &Value) -> Value {
        let json = |stand_in| {
            let (whole, _) = decode::<Whole>(object, stand_in).expect("the object is partial");
            serde_json::to_value(whole).expect("the value can be serialized")
        };
        common(json(StandIn::Zero), json(StandIn::Other)).unwrap_or_default()
    }

    #[rstest]
    #[case::no_fields(json!({}), json!({"is_open": false}))]
    #[case::items_of_a_list(json!({"parts": [{"name": "a/ä"}, {"size": 2}]}),
        json!({"parts": [{"name": "a/ä"}, {"size": 2}], "is_open": false}))]
    #[case::nested_object(json!({"main": {"size": 0}, "is_open": true}), json!({"main": {"size": 0}, "is_open": true}))]
    #[case::enumeration(json!({"color": "Blue"}), json!({"color": "Blue", "is_open": false}))]
    #[case::empty_map_and_list(json!({"labels": {}, "parts": []}),
        json!({"labels": {}, "parts": [], "is_open": false}))]
    fn stand_ins_for_missing_fields_are_removed_from_the_result(#[case] object: Value, #[case] wanted: Value) {
        assert_eq!(through(&object), wanted);
    }

    #[test]
    fn value_of_another_type_is_an_error() {
        let err = decode::<Whole>(&json!({"title": 7}), StandIn::Zero).expect_err("the title is not a string");
        assert!(err.contains("invalid type: integer `7`, expected a string"), "{err}");
    }
}
