//! Reading and filling JSON of unknown shape: a field of the wrong type reads as absent.

use std::sync::LazyLock;

use serde_json::{Map, Value};

/// A JSON object.
pub(crate) type JsonMap = Map<String, Value>;

/// The object read where there is none.
static EMPTY: LazyLock<JsonMap> = LazyLock::new(Map::new);

/// A string field, empty if absent.
pub(crate) fn text<'a>(map: &'a JsonMap, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// An integer field.
pub(crate) fn integer(map: &JsonMap, key: &str) -> Option<i64> {
    map.get(key).and_then(Value::as_i64)
}

/// A boolean field.
pub(crate) fn flag(map: &JsonMap, key: &str) -> Option<bool> {
    map.get(key).and_then(Value::as_bool)
}

/// A list field, empty if absent.
pub(crate) fn list<'a>(map: &'a JsonMap, key: &str) -> &'a [Value] {
    map.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The objects of a list field with their places.
pub(crate) fn items<'a>(map: &'a JsonMap, key: &str) -> impl Iterator<Item = (usize, &'a JsonMap)> {
    list(map, key)
        .iter()
        .enumerate()
        .map(|(index, item)| (index, item.as_object().unwrap_or(&EMPTY)))
}

/// The strings of a list field with their places.
pub(crate) fn texts<'a>(map: &'a JsonMap, key: &str) -> impl Iterator<Item = (usize, &'a str)> {
    list(map, key)
        .iter()
        .enumerate()
        .map(|(index, item)| (index, item.as_str().unwrap_or_default()))
}

/// An object field.
pub(crate) fn object<'a>(map: &'a JsonMap, key: &str) -> Option<&'a JsonMap> {
    map.get(key).and_then(Value::as_object)
}

/// An object field, empty if absent.
pub(crate) fn object_or_empty<'a>(map: &'a JsonMap, key: &str) -> &'a JsonMap {
    object(map, key).unwrap_or(&EMPTY)
}

/// Returns `true` if a field is present and not null.
pub(crate) fn is_set(map: &JsonMap, key: &str) -> bool {
    map.get(key).is_some_and(|value| !value.is_null())
}

/// Returns `true` if a field has the same value in both; absent and null are the same.
pub(crate) fn same(one: &JsonMap, other: &JsonMap, key: &str) -> bool {
    let value = |map: &'_ JsonMap| map.get(key).is_some_and(|value| !value.is_null());
    match (value(one), value(other)) {
        (true, true) => one.get(key) == other.get(key),
        (left, right) => left == right,
    }
}

/// Puts the value of `from` in the place of that of `to`, absence included.
pub(crate) fn copy_field(from: &JsonMap, to: &mut JsonMap, key: &str) {
    match from.get(key) {
        Some(value) => {
            if to.get(key) != Some(value) {
                to.insert(key.to_owned(), value.clone());
            }
        }
        None => {
            to.remove(key);
        }
    }
}
