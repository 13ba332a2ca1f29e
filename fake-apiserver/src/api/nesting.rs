//! Depth of nested objects.

use crate::api::json::{Map, SmolStr, Value};

/// The most levels of lists and maps of an object. Owned fields nest up to five levels deeper in
/// `managedFields` than in the object, and serde_json, by which most clients in Rust read the answer, stops at 127.
pub(crate) const MAX: usize = 122;

/// The most levels that serde_json reads.
const READABLE_MAX: usize = 127;

/// Go's error for text that nests too deeply, which is at 10,000 levels there.
pub(crate) const EXCEEDED: &str = "exceeded max depth";

/// The levels of lists and maps in a value.
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

/// The same of an object without what the server itself says of the owners of its fields.
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

/// Returns `true` if an object can be read back once it is written, by this server and by those clients; the owners of
/// its fields count, too.
pub(crate) fn is_readable(object: &Map) -> bool {
    let whole = 1 + object.values().map(levels).max().unwrap_or_default();
    whole <= READABLE_MAX && (whole <= MAX || levels_of_map(object) <= MAX)
}
