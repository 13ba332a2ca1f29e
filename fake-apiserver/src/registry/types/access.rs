//! Reading and filling JSON whose types are not promised: a field of the wrong type reads as absent.

use serde_json::{Map, Value};

/// The value at a dotted path; `None` where it is absent or null.
pub(crate) fn at<'a>(map: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut steps = path.split('.');
    let mut value = map.get(steps.next()?)?;
    for step in steps {
        value = value.get(step)?;
    }
    (!value.is_null()).then_some(value)
}

/// The string at a dotted path, empty if absent.
pub(crate) fn text<'a>(map: &'a Map<String, Value>, path: &str) -> &'a str {
    at(map, path).and_then(Value::as_str).unwrap_or_default()
}

/// The integer at a dotted path.
pub(crate) fn number(map: &Map<String, Value>, path: &str) -> Option<i64> {
    at(map, path).and_then(Value::as_i64)
}

/// The items of the list at a dotted path.
pub(crate) fn list<'a>(map: &'a Map<String, Value>, path: &str) -> &'a [Value] {
    at(map, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The objects in the list at a dotted path, with their indices.
pub(crate) fn objects<'a>(
    map: &'a Map<String, Value>,
    path: &str,
) -> impl Iterator<Item = (usize, &'a Map<String, Value>)> {
    let items = list(map, path).iter().enumerate();
    items.filter_map(|(index, item)| Some((index, item.as_object()?)))
}

/// The object at a dotted path, if there is one.
pub(crate) fn object_mut<'a>(map: &'a mut Map<String, Value>, path: &str) -> Option<&'a mut Map<String, Value>> {
    path.split('.')
        .try_fold(map, |map, step| map.get_mut(step)?.as_object_mut())
}

/// The objects in the list at a dotted path.
pub(crate) fn objects_mut<'a>(
    map: &'a mut Map<String, Value>,
    path: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let (parent, field) = path.rsplit_once('.').unwrap_or(("", path));
    let parent = if parent.is_empty() {
        Some(map)
    } else {
        object_mut(map, parent)
    };
    let items = parent.and_then(|parent| parent.get_mut(field)?.as_array_mut());
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The object `field`, made where it is absent.
pub(crate) fn ensure_object<'a>(map: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    let value = map.entry(field).or_insert_with(|| Value::Object(Map::new()));
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("made an object on the line above")
}

/// Sets `field` where it is absent, null or an empty string.
pub(crate) fn default_to(map: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    if map.get(field).is_none_or(|it| it.is_null() || it == "") {
        map.insert(field.to_owned(), value.into());
    }
}

/// Sets `field` where it is absent or null; an empty string stays, as in a field that Go has as a pointer.
pub(crate) fn default_absent(map: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    if map.get(field).is_none_or(Value::is_null) {
        map.insert(field.to_owned(), value.into());
    }
}

/// Returns `true` if the field is absent, null, or an empty value of any type.
pub(crate) fn is_empty(map: &Map<String, Value>, path: &str) -> bool {
    match at(map, path) {
        None => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(_) => false,
    }
}

/// Puts the value that `old` has for `field`, or none.
pub(crate) fn restore(map: &mut Map<String, Value>, old: &Map<String, Value>, field: &str) {
    match old.get(field) {
        Some(value) => {
            if map.get(field) != Some(value) {
                map.insert(field.to_owned(), value.clone());
            }
        }
        None => {
            map.remove(field);
        }
    }
}
