//! Functions that modify JSON objects, for defaults and restored fields. A field of the wrong type is treated as
//! absent.

use serde_json::Number;

use crate::api::json::{Map, Value};

/// Returns the object at a dotted path, if there is one.
pub(crate) fn object_mut<'a>(map: &'a mut Map, way: &str) -> Option<&'a mut Map> {
    way.split('.')
        .try_fold(map, |map, step| map.get_mut(step)?.as_object_mut())
}

/// Returns the objects in the list at a dotted path.
pub(crate) fn items_mut<'a>(map: &'a mut Map, way: &str) -> impl Iterator<Item = &'a mut Map> {
    let (parent, field) = match way.rsplit_once('.') {
        Some((parent, field)) => (object_mut(map, parent), field),
        None => (Some(map), way),
    };
    let items = parent.and_then(|parent| parent.get_mut(field)?.as_array_mut());
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Returns the object in `field`, which is created if the field is absent.
pub(crate) fn ensure_object<'a>(map: &'a mut Map, field: &str) -> &'a mut Map {
    if !map.get(field).is_some_and(Value::is_object) {
        map.insert(field.into(), Value::Object(Map::new()));
    }
    let value = map.get_mut(field).and_then(Value::as_object_mut);
    value.expect("the value is an object")
}

/// Keeps the entries for which `keeps` returns `true`, like `Map::retain`, but faster if all entries are kept, which is
/// the usual case.
pub(crate) fn keep_entries(map: &mut Map, mut keeps: impl FnMut(&str, &mut Value) -> bool) {
    let mut gone: Vec<String> = Vec::new();
    for (key, value) in map.iter_mut() {
        if !keeps(key, value) {
            gone.push(key.to_string());
        }
    }
    if gone.is_empty() {
        return;
    }
    let mut gone = gone.iter().peekable();
    map.retain(|key, _| gone.next_if_eq(&key).is_none());
}

/// Sets `field` if it is absent or null. An empty string is kept, as for a field that is a pointer in Go.
pub(crate) fn default_value(map: &mut Map, field: &str, value: impl Into<Value>) {
    if map.get(field).is_none_or(Value::is_null) {
        map.insert(field.into(), value.into());
    }
}

/// Sets `field` if it is absent, null or an empty string.
pub(crate) fn default_text(map: &mut Map, field: &str, value: &str) {
    if map.get(field).is_none_or(|it| it.is_null() || it == "") {
        map.insert(field.into(), value.into());
    }
}

/// Sets `field` if it is absent, null or zero, for fields in which zero means unset.
pub(crate) fn default_nonzero(map: &mut Map, field: &str, value: i64) {
    if map.get(field).is_none_or(|it| it.is_null() || it.as_i64() == Some(0)) {
        map.insert(field.into(), value.into());
    }
}

/// Sets `field` to an empty object if it is absent or null.
pub(crate) fn default_object(map: &mut Map, field: &str) {
    default_value(map, field, Map::new());
}

/// Removes annotations from an object or a template, and the field with all annotations if none remain.
pub(crate) fn remove_annotations(object: &mut Map, keys: &[&str]) {
    let Some(metadata) = object_mut(object, "metadata") else {
        return;
    };
    let annotations = metadata.get("annotations").and_then(Value::as_object);
    if !annotations.is_some_and(|it| keys.iter().any(|key| it.contains_key(key))) {
        return;
    }
    let annotations = ensure_object(metadata, "annotations");
    annotations.retain(|key, _| !keys.contains(&key.as_str()));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// Copies `field` from `from` to `to`, or removes it if `from` does not have it.
pub(crate) fn copy_field(from: &Map, to: &mut Map, field: &str) {
    match from.get(field) {
        Some(value) => {
            if to.get(field) != Some(value) {
                to.insert(field.into(), value.clone());
            }
        }
        None => {
            to.remove(field);
        }
    }
}

/// Converts integers that do not fit into a signed 64-bit integer to floats, as Go does when it decodes JSON without a
/// type.
pub(crate) fn round_large_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_u64() && !number.is_i64() => {
            if let Some(float) = number.as_f64().and_then(Number::from_f64) {
                *number = float;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(round_large_numbers),
        // Maps that are not parsed yet only contain objects, and therefore no numbers.
        Value::Object(map) if map.encoded().is_none() => map.values_mut().for_each(round_large_numbers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {}
    }
}
