//! Depth of nested objects.

use crate::api::json::{Map, SmolStr, Value};

/// Maximum nesting depth of lists and maps in an object. Owned fields nest up to five levels deeper in `managedFields`
/// than in the object, and serde_json, which most Rust clients use, accepts at most 127 levels.
pub(crate) const MAX: usize = 122;

/// Maximum depth that serde_json accepts.
const READABLE_MAX: usize = 127;

/// Go's error for JSON that is nested too deeply; Go's own limit is 10,000 levels.
pub(crate) const EXCEEDED: &str = "exceeded max depth";

/// Returns the nesting depth of lists and maps in a value.
pub(crate) fn levels(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or_default(),
        Value::Object(map) => match map.encoded() {
            Some(encoded) => encoded.levels(),
            None => 1 + map.values().map(levels).max().unwrap_or_default(),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Returns the nesting depth of an object without its `managedFields`.
pub(crate) fn levels_of_object(object: &Value) -> usize {
    match object {
        Value::Object(map) => levels_of_map(map),
        other => levels(other),
    }
}

fn levels_of_map(object: &Map) -> usize {
    let below = |(key, value): (&SmolStr, &Value)| match (key.as_str(), value) {
        ("metadata", Value::Object(metadata)) => {
            let fields = metadata.iter().filter(|(key, _)| *key != "managedFields");
            1 + fields.map(|(_, value)| levels(value)).max().unwrap_or_default()
        }
        _ => levels(value),
    };
    1 + object.iter().map(below).max().unwrap_or_default()
}

/// Returns `true` if this server and serde_json can decode the object, including its managed fields, from its JSON.
pub(crate) fn is_readable(object: &Map) -> bool {
    let whole = 1 + object.values().map(levels).max().unwrap_or_default();
    whole <= READABLE_MAX && (whole <= MAX || levels_of_map(object) <= MAX)
}
