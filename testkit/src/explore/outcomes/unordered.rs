//! Lists in which the order of items is irrelevant: sets, and lists with keys.

use fake_apiserver::StoredObject;
use serde_json::{Map, Value};

/// Sorts the sets of an object by their items, and its lists with keys by their keys, so that two objects with the same
/// items are equal. `value` is the object itself, or a variant of it.
pub(crate) fn sort(object: &StoredObject, value: &mut Value) {
    object.visit_unordered_lists(value, &mut |list, keys| {
        if let Value::Array(items) = list {
            items.sort_by_cached_key(|item| (key(item, keys), item.to_string()));
        }
    });
    // By convention the type of a condition is its key, even if the schema does not declare it.
    if let Some(Value::Array(conditions)) = value.pointer_mut("/status/conditions")
        && conditions.iter().all(|it| it["type"].is_string())
    {
        conditions.sort_by_cached_key(|it| it["type"].to_string());
    }
}

/// Replaces an object's sets and keyed lists with maps, so that the path to an item does not depend on other items.
pub(crate) fn by_keys(object: &StoredObject, value: &mut Value) {
    object.visit_unordered_lists(value, &mut |list, keys| {
        if let Value::Array(items) = list {
            let items = std::mem::take(items).into_iter();
            *list = Value::Object(
                items
                    .map(|item| (key(&item, keys), item))
                    .collect::<Map<String, Value>>(),
            );
        }
    });
}

/// Returns the key of an item: the values of its key fields, or in a set, the item itself.
fn key(item: &Value, keys: &[&str]) -> String {
    let values = keys.iter().map(|it| item.get(*it).unwrap_or(&Value::Null));
    match keys {
        [] => text(item),
        _ => values.map(text).collect::<Vec<String>>().join(","),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
