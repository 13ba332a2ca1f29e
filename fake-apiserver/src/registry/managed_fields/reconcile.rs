//! Updates entries that were written under an older schema: if a list or map has become atomic, the owner of a part
//! becomes an owner of the entire list or map.

use super::element::Element;
use super::set::{FieldSet, Node};
use super::{entries, json};
use crate::api::json::Value;
use crate::registry::types::schema::SchemaRef;

/// Adapts the entries of one version to its schema. Only schemas of custom resources ever change.
pub(super) fn reconcile(schema: SchemaRef<'_>, api_version: &str, list: &mut [Value]) {
    if !matches!(schema, SchemaRef::Custom(_)) {
        return;
    }
    let of_version = list
        .iter_mut()
        .filter(|entry| entries::text(entry, "apiVersion") == api_version);
    for entry in of_version {
        if entries::fields(entry).is_none_or(|fields| json::fit(schema, fields)) {
            continue;
        }
        if let Ok(fields) = json::decode(entry.get("fieldsV1")) {
            let fitting = json::encode(&reconciled(schema, fields));
            entries::set_fields(entry, fitting);
        }
    }
}

/// Returns the schema of the values at a node.
fn below<'s>(schema: SchemaRef<'s>, node: &Node<'_>) -> Option<SchemaRef<'s>> {
    match &node.element {
        Element::Field(name) => schema.field(name),
        Element::Key(_) | Element::Value(_) | Element::Index(_) => Some(schema.items()),
    }
}

fn reconciled<'a>(schema: SchemaRef<'_>, set: FieldSet<'a>) -> FieldSet<'a> {
    let mut out = FieldSet::with_capacity(set.nodes().len());
    for node in set.into_nodes() {
        match below(schema, &node) {
            Some(below) if !node.children.is_empty() && below.is_atomic() => {
                out.push(node.element, true, FieldSet::new());
            }
            Some(below) => out.push(node.element, node.member, reconciled(below, node.children)),
            None => out.push(node.element, node.member, node.children),
        }
    }
    out
}
