//! Fills in the defaults of a schema, and removes nulls that the schema does not allow (rule O6).

use super::properties::FieldsInOrder;
use super::schema::{Additional, Structural};
use crate::api::json::{Map, Value};
use crate::registry::types::edit::keep_entries;

/// Removes null fields that are not nullable and do not have a default. Nulls in lists are kept, and fail validation.
pub(super) fn drop_nulls(map: &mut Map, node: &Structural) {
    let mut fields = FieldsInOrder::of(node);
    keep_entries(map, |name, value| {
        let Some(child) = fields.child(name) else {
            return true;
        };
        if value.is_null() {
            return child.nullable || child.default.is_some();
        }
        drop_nulls_in(value, child);
        true
    });
}

fn drop_nulls_in(value: &mut Value, node: &Structural) {
    match value {
        Value::Object(map) => drop_nulls(map, node),
        Value::Array(list) => {
            if let Some(items) = node.items.as_deref() {
                list.iter_mut().for_each(|item| drop_nulls_in(item, items));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Fills in the defaults of missing fields, and of null fields that are not nullable.
pub(super) fn fill(map: &mut Map, node: &Structural) {
    if !node.below.defaults {
        return;
    }
    for (name, child) in node.properties.iter() {
        let Some(default) = &child.default else { continue };
        match map.get_mut(name) {
            Some(value) if value.is_null() && !child.nullable => *value = default.clone(),
            Some(_) => {}
            None => {
                map.insert(name.as_str().into(), default.clone());
            }
        }
    }
    let mut fields = FieldsInOrder::of(node);
    for (name, value) in map.iter_mut() {
        let (child, is_additional) = match (fields.declared(name), &node.additional) {
            (Some(child), _) => (child, false),
            (None, Additional::Schema(child)) => (&**child, true),
            (None, Additional::Unset | Additional::Bool(_)) => continue,
        };
        if is_additional {
            replace_null(value, child);
        }
        fill_value(value, child);
    }
}

/// Fills in the defaults of a value inside an object.
pub(super) fn fill_value(value: &mut Value, node: &Structural) {
    if !node.below.defaults {
        return;
    }
    match value {
        Value::Object(map) => fill(map, node),
        Value::Array(list) => {
            let Some(items) = node.items.as_deref() else { return };
            for item in list {
                replace_null(item, items);
                fill_value(item, items);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn replace_null(value: &mut Value, node: &Structural) {
    if let (Value::Null, false, Some(default)) = (&*value, node.nullable, &node.default) {
        *value = default.clone();
    }
}
