//! Defaults must be valid under their own schema (rule O4).

use serde_json::{Map, Value};

use super::super::embedded;
use super::super::prune::prune_value;
use super::super::schema::{Structural, is_meta_field};
use super::super::validate;
use crate::api::field::{FieldErrors, FieldPath};

/// Checks all defaults of a structural root schema.
pub(super) fn validate(schema: &Map<String, Value>, path: &FieldPath) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let root = Structural::parse_root(&Value::Object(schema.clone()));
    if root.below.defaults {
        walk(&root, path, false, &mut errors);
    }
    errors
}

fn walk(node: &Structural, path: &FieldPath, in_metadata: bool, errors: &mut FieldErrors) {
    let in_metadata = in_metadata && !node.is_embedded;
    if let Some(default) = &node.default {
        check(node, default, &path.child("default"), in_metadata, errors);
    }
    if let Some(items) = &node.items {
        walk(items, &path.child("items"), in_metadata, errors);
    }
    for (name, property) in &node.properties {
        let in_metadata = in_metadata || (node.is_resource && is_meta_field(name));
        walk(property, &path.child("properties").key(name), in_metadata, errors);
    }
}

fn check(node: &Structural, default: &Value, path: &FieldPath, in_metadata: bool, errors: &mut FieldErrors) {
    if !in_metadata && !prune_value(&mut default.clone(), node).is_empty() {
        errors.invalid(path.clone(), default.clone(), "must not have unknown fields");
    }
    let mut found = FieldErrors::new();
    if !in_metadata {
        embedded::validate(default, node, path, &mut found);
    }
    if found.is_empty() {
        found = validate::validate(node, default, None, path);
    }
    errors.extend(found);
}
