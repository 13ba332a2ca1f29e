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

/// An object field to change, if it is there.
pub(crate) fn object_mut<'a>(map: &'a mut JsonMap, key: &str) -> Option<&'a mut JsonMap> {
    map.get_mut(key).and_then(Value::as_object_mut)
}

/// Returns an object field to change, creating it where it is absent; `None` if the field has another type.
pub(crate) fn object_made<'a>(map: &'a mut JsonMap, key: &str) -> Option<&'a mut JsonMap> {
    default_value(map, key, || Value::Object(Map::new()));
    object_mut(map, key)
}

/// The objects of a list field, to change.
pub(crate) fn items_mut<'a>(map: &'a mut JsonMap, key: &str) -> impl Iterator<Item = &'a mut JsonMap> {
    map.get_mut(key)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

/// Returns `true` if a field is present and not null.
pub(crate) fn is_set(map: &JsonMap, key: &str) -> bool {
    map.get(key).is_some_and(|value| !value.is_null())
}

/// A field's value; null where it is absent.
pub(crate) fn value_of(map: &JsonMap, key: &str) -> Value {
    map.get(key).cloned().unwrap_or(Value::Null)
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

/// Fills in a field that is absent or null.
pub(crate) fn default_value(map: &mut JsonMap, key: &str, value: impl FnOnce() -> Value) {
    if !is_set(map, key) {
        map.insert(key.to_owned(), value());
    }
}

/// Fills in a string that is absent or empty.
pub(crate) fn default_text(map: &mut JsonMap, key: &str, value: &str) {
    let missing = match map.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    };
    if missing {
        map.insert(key.to_owned(), Value::String(value.to_owned()));
    }
}

/// Fills in a number that is absent or zero, for fields in which zero means unset.
pub(crate) fn default_nonzero(map: &mut JsonMap, key: &str, value: i64) {
    let missing = match map.get(key) {
        None | Some(Value::Null) => true,
        Some(number) => number.as_i64() == Some(0),
    };
    if missing {
        map.insert(key.to_owned(), Value::from(value));
    }
}

/// Fills in a number that is absent; zero stays.
pub(crate) fn default_number(map: &mut JsonMap, key: &str, value: i64) {
    default_value(map, key, || Value::from(value));
}

/// Fills in an empty object.
pub(crate) fn default_object(map: &mut JsonMap, key: &str) {
    default_value(map, key, || Value::Object(Map::new()));
}
