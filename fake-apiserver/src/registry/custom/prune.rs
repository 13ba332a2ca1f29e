//! Pruning: removes the fields that the schema does not declare, and reports them (rules O5, L4).

use super::path::Path;
use super::properties::FieldsInOrder;
use super::schema::{Additional, Structural, is_meta_field};
use crate::api::json::{Map, Value};
use crate::registry::types::edit::keep_entries;

/// Removes the fields of a complete object that `schema` does not declare, and returns their sorted paths. Without a
/// schema, only `apiVersion`, `kind` and `metadata` are declared.
pub(super) fn prune(object: &mut Map, schema: Option<&Structural>) -> Vec<String> {
    let nothing = Structural {
        is_resource: true,
        ..Structural::default()
    };
    let mut removed = Vec::new();
    let schema = schema.unwrap_or(&nothing);
    prune_fields(object, schema, schema.preserves_unknown, &Path::Root, &mut removed);
    removed.sort_unstable();
    removed
}

/// Same as [`prune`], for a value inside an object.
pub(super) fn prune_value(value: &mut Value, node: &Structural) -> Vec<String> {
    let mut removed = Vec::new();
    walk(value, Some(node), false, &Path::Root, &mut removed);
    removed
}

/// Prunes a value. `keeps` is set if the enclosing list preserves unknown fields. Values of declared fields are still
/// pruned.
fn walk(value: &mut Value, node: Option<&Structural>, keeps: bool, path: &Path<'_>, removed: &mut Vec<String>) {
    let keeps = keeps || node.is_some_and(|node| node.preserves_unknown);
    match (value, node) {
        (Value::Object(map), Some(node)) => prune_fields(map, node, keeps, path, removed),
        (Value::Object(map), None) => {
            removed.extend(map.keys().map(|name| path.field(name).text()));
            map.clear();
        }
        (Value::Array(list), node) => {
            let items = node.and_then(|node| node.items.as_deref());
            if items.is_none() && keeps {
                return;
            }
            for (index, item) in list.iter_mut().enumerate() {
                walk(item, items, keeps, &path.index(index), removed);
            }
        }
        (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_), _) => {}
    }
}

fn prune_fields(map: &mut Map, node: &Structural, keeps: bool, path: &Path<'_>, removed: &mut Vec<String>) {
    let mut fields = FieldsInOrder::of(node);
    keep_entries(map, |name, value| {
        if node.is_resource && is_meta_field(name) {
            return true;
        }
        match (fields.declared(name), &node.additional) {
            (Some(child), _) => walk(value, Some(child), false, &path.field(name), removed),
            (None, Additional::Schema(child)) => walk(value, Some(child), false, &path.field(name), removed),
            (None, Additional::Bool(_)) => walk(value, None, false, &path.field(name), removed),
            (None, Additional::Unset) if keeps => {}
            (None, Additional::Unset) => {
                removed.push(path.field(name).text());
                return false;
            }
        }
        true
    });
}
