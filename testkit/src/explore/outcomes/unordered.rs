//! Lists in which the order of items is irrelevant: sets, and lists with keys.

use std::collections::BTreeSet;

use fake_apiserver::StoredObject;
use serde_json::{Map, Value};

/// Sorts the sets of an object by their items, and its lists with keys by their keys, so that two objects with the same
/// items are equal. With `sorts_names`, also sorts the lists of different strings in its status. `value` is the object
/// itself, or a variant of it.
pub(crate) fn sort(object: &StoredObject, value: &mut Value, sorts_names: bool) {
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
    if let Some(status) = value.get_mut("status").filter(|_| sorts_names) {
        sort_names(status);
    }
}

/// Sorts lists of different strings in a status. Programs write such lists, for example the names of all ready Pods, in
/// the order of a cache, which is random in Go.
fn sort_names(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(sort_names),
        Value::Array(items) => {
            let names: BTreeSet<&str> = items.iter().filter_map(Value::as_str).collect();
            if names.len() == items.len() {
                items.sort_by_cached_key(text);
            } else {
                items.iter_mut().for_each(sort_names);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
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

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::names(json!({"members": {"ready": ["b", "a"]}}), json!({"members": {"ready": ["a", "b"]}}), true)]
    #[case::names_in_a_list(json!([{"pods": ["b", "a"]}]), json!([{"pods": ["a", "b"]}]), true)]
    #[case::equal_names(json!({"history": ["b", "a", "b"]}), json!({"history": ["a", "b", "b"]}), false)]
    #[case::numbers(json!({"partitions": [2, 1]}), json!({"partitions": [1, 2]}), false)]
    fn only_lists_of_different_names_in_a_status_are_unordered(
        #[case] mut one: Value,
        #[case] mut other: Value,
        #[case] is_same: bool,
    ) {
        sort_names(&mut one);
        sort_names(&mut other);
        assert_eq!(one == other, is_same);
    }
}
