//! Lists that are sets or maps hold an item only once (rule O9).

use serde_json::{Map, Value};

use super::path::Path;
use super::properties::FieldsInOrder;
use super::schema::{Additional, ListKind, Structural};
use crate::api::field::{FieldErrors, FieldPath};

/// Finds items of sets, and keys of map-lists, that come twice. Each is reported at its second occurrence.
pub(super) fn validate(object: &Map<String, Value>, schema: &Structural) -> FieldErrors {
    let mut errors = FieldErrors::new();
    check_map(object, schema, &Path::Root, &mut errors);
    errors
}

fn check_map(map: &Map<String, Value>, node: &Structural, path: &Path<'_>, errors: &mut FieldErrors) {
    if !node.below.unique_lists {
        return;
    }
    let mut fields = FieldsInOrder::of(node);
    for (name, value) in map {
        match (fields.declared(name), &node.additional) {
            (Some(child), _) => check(value, child, &path.field(name), errors),
            (None, Additional::Schema(child)) => check(value, child, &path.key(name), errors),
            (None, Additional::Unset | Additional::Bool(_)) => {}
        }
    }
}

fn check(value: &Value, node: &Structural, path: &Path<'_>, errors: &mut FieldErrors) {
    match value {
        _ if !node.below.unique_lists => {}
        Value::Object(map) => check_map(map, node, path, errors),
        Value::Array(list) => {
            match &node.list {
                ListKind::Atomic => {}
                ListKind::Set => report_twice(list, path, errors),
                ListKind::Map(keys) => check_map_list(list, keys, path, errors),
            }
            if let Some(items) = &node.items {
                for (index, item) in list.iter().enumerate() {
                    check(item, items, &path.index(index), errors);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn check_map_list(list: &[Value], keys: &[String], path: &Path<'_>, errors: &mut FieldErrors) {
    let is_item = |item: &Value| item.is_object() || item.is_null();
    if let Some((index, item)) = list.iter().enumerate().find(|(_, item)| !is_item(item)) {
        let text = "must be an object for an array of list-type map";
        return errors.invalid(FieldPath::new(&path.index(index).text()), item.clone(), text);
    }
    let keys_of = |item: &Value| {
        let present = keys
            .iter()
            .filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        Value::Object(present.collect())
    };
    let all: Vec<Value> = list.iter().map(keys_of).collect();
    report_twice(&all, path, errors);
}

fn report_twice(list: &[Value], path: &Path<'_>, errors: &mut FieldErrors) {
    if list.len() < 2 {
        return;
    }
    // Sorted by their text, so that no body costs quadratic time.
    let mut order: Vec<(String, usize)> = list.iter().enumerate().map(|(at, it)| (it.to_string(), at)).collect();
    order.sort_unstable();
    let mut second: Vec<usize> = order
        .chunk_by(|a, b| a.0 == b.0)
        .filter_map(|equal| Some(equal.get(1)?.1))
        .collect();
    second.sort_unstable();
    for index in second {
        errors.duplicate(FieldPath::new(&path.index(index).text()), list[index].clone());
    }
}
