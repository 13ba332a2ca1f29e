//! Entries that an older schema shaped: where a list or map is atomic now, who owned part of it owns all of it.

use super::entries;
use crate::api::json::{Map, Value};
use crate::registry::types::schema::{Form, ListType, SchemaRef};

/// Brings the entries of one version in line with its schema. Only schemas of custom resources ever change.
pub(super) fn reconcile(schema: SchemaRef<'_>, api_version: &str, list: &mut [Value]) {
    if !matches!(schema, SchemaRef::Custom(_)) {
        return;
    }
    let of_version = list
        .iter_mut()
        .filter(|entry| entries::text(entry, "apiVersion") == api_version);
    for fields in of_version.filter_map(entries::fields_mut) {
        reconcile_fields(schema, fields);
    }
}

fn reconcile_fields(schema: SchemaRef<'_>, fields: &mut Map) {
    for (key, value) in fields {
        let Value::Object(below) = value else {
            continue;
        };
        if below.is_empty() {
            continue;
        }
        let below_schema = match key.strip_prefix("f:") {
            Some(name) => schema.field(name),
            None => Some(schema.items()),
        };
        let Some(below_schema) = below_schema else {
            continue;
        };
        if is_atomic(below_schema) {
            below.clear();
        } else {
            reconcile_fields(below_schema, below);
        }
    }
}

fn is_atomic(schema: SchemaRef<'_>) -> bool {
    match schema.form() {
        Form::Map => schema.is_atomic_map(),
        Form::List => schema.list_type() == ListType::Atomic,
        Form::Any | Form::String | Form::Numeric | Form::Boolean | Form::Scalar => false,
    }
}
