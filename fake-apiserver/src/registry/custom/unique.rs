//! Checks that lists of type `set` or `map` do not contain duplicates (rule O9).

use super::properties::FieldsInOrder;
use super::schema::{Additional, ListKind, Structural};
use crate::api::field::FieldErrors;
use crate::api::json::{Map, Value};
use crate::registry::types::cursor::Cursor;

/// Finds duplicate items in lists of type `set`, and duplicate keys in lists of type `map`. Each is reported at its
/// second occurrence.
pub(super) fn validate(object: &Map, schema: &Structural) -> FieldErrors {
    let mut errors = FieldErrors::new();
    check_fields(&Cursor::root(object), schema, &mut errors);
    errors
}

fn check_fields(value: &Cursor<'_>, node: &Structural, errors: &mut FieldErrors) {
    if !node.below.unique_lists {
        return;
    }
    let mut fields = FieldsInOrder::of(node);
    for (name, field) in value.fields() {
        match (fields.declared(name), &node.additional) {
            (Some(child), _) => check(&field, child, errors),
            (None, Additional::Schema(child)) => check(&field.as_entry(), child, errors),
            (None, Additional::Unset | Additional::Bool(_)) => {}
        }
    }
}

fn check(value: &Cursor<'_>, node: &Structural, errors: &mut FieldErrors) {
    if !node.below.unique_lists {
        return;
    }
    match &node.list {
        ListKind::Atomic => {}
        ListKind::Set => report_twice(value.list(""), value, errors),
        ListKind::Map(keys) => check_map_list(value, keys, errors),
    }
    if let Some(items) = &node.items {
        value.items("").for_each(|item| check(&item, items, errors));
    }
    check_fields(value, node, errors);
}

fn check_map_list(value: &Cursor<'_>, keys: &[String], errors: &mut FieldErrors) {
    let list = value.list("");
    let is_item = |item: &Value| item.is_object() || item.is_null();
    if let Some((index, item)) = list.iter().enumerate().find(|(_, item)| !is_item(item)) {
        let text = "must be an object for an array of list-type map";
        return errors.invalid(value.path().index(index), item.clone(), text);
    }
    let keys_of = |item: &Value| {
        let present = keys
            .iter()
            .filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
        Value::Object(present.collect())
    };
    let all: Vec<Value> = list.iter().map(keys_of).collect();
    report_twice(&all, value, errors);
}

fn report_twice(list: &[Value], at: &Cursor<'_>, errors: &mut FieldErrors) {
    if list.len() < 2 {
        return;
    }
    // Sorts the items by their JSON strings, to avoid quadratic time for long lists.
    let mut order: Vec<(String, usize)> = list.iter().enumerate().map(|(at, it)| (it.to_string(), at)).collect();
    order.sort_unstable();
    let mut second: Vec<usize> = order
        .chunk_by(|a, b| a.0 == b.0)
        .filter_map(|equal| Some(equal.get(1)?.1))
        .collect();
    second.sort_unstable();
    for index in second {
        errors.duplicate(at.path().index(index), list[index].clone());
    }
}
