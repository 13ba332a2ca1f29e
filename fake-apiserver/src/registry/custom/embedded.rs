//! Decodes and checks the metadata of objects embedded in a custom resource (`x-kubernetes-embedded-resource`).

use super::metadata;
use super::path::Path;
use super::properties::FieldsInOrder;
use super::schema::{Additional, Structural};
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors, FieldPath};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::kinds::metadata as rules;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names;

/// Decodes the metadata of all embedded objects, and adds the paths of unknown fields. Fails with kube-apiserver's
/// message.
pub(super) fn decode(map: &mut Map, node: &Structural, unknown: &mut Vec<String>) -> Result<(), String> {
    if !node.below.embedded {
        return Ok(());
    }
    let mut found = Vec::new();
    decode_map(map, node, &Path::Root, &mut found)?;
    found.sort_unstable();
    unknown.extend(found);
    Ok(())
}

/// Same as [`decode`], for a default value. Does not report unknown fields.
pub(super) fn decode_default(value: &mut Value, node: &Structural) {
    if node.below.embedded {
        // Validation refuses malformed metadata later.
        let _ = decode_value(value, node, &Path::Root, &mut Vec::new());
    }
}

fn decode_map(map: &mut Map, node: &Structural, path: &Path<'_>, unknown: &mut Vec<String>) -> Result<(), String> {
    let mut fields = FieldsInOrder::of(node);
    for (name, value) in map.iter_mut() {
        let path = path.field(name);
        if node.is_embedded {
            decode_implied(name, value, &path, unknown)?;
        }
        if let Some(child) = fields.child(name) {
            decode_value(value, child, &path, unknown)?;
        }
    }
    Ok(())
}

fn decode_value(
    value: &mut Value,
    node: &Structural,
    path: &Path<'_>,
    unknown: &mut Vec<String>,
) -> Result<(), String> {
    match (value, &node.items) {
        (Value::Object(map), _) => decode_map(map, node, path, unknown),
        (Value::Array(list), Some(items)) => {
            let mut items_of = list.iter_mut().enumerate();
            items_of.try_for_each(|(index, item)| decode_value(item, items, &path.index(index), unknown))
        }
        _ => Ok(()),
    }
}

/// Decodes `apiVersion`, `kind` or `metadata`, which the schema need not declare.
fn decode_implied(name: &str, value: &mut Value, path: &Path<'_>, unknown: &mut Vec<String>) -> Result<(), String> {
    let invalid = |value: &Value, detail: String| {
        let error = FieldError {
            path: FieldPath::new(&path.text()),
            kind: FieldErrorKind::Invalid,
            value: Some(value.clone()),
            detail,
        };
        error.to_string()
    };
    match name {
        "apiVersion" | "kind" if !value.is_string() => Err(invalid(value, "must be a string".into())),
        "metadata" => {
            let original = value.clone();
            metadata::decode(value, &path.text(), unknown).map_err(|error| invalid(&original, error))
        }
        _ => Ok(()),
    }
}

/// Checks all embedded objects in a value.
pub(super) fn validate(value: &Cursor<'_>, node: &Structural, errors: &mut FieldErrors) {
    if !node.below.embedded {
        return;
    }
    if node.is_embedded && value.map("").is_some() {
        validate_embedded(value, errors);
    }
    if let Some(items) = &node.items {
        value.items("").for_each(|item| validate(&item, items, errors));
    }
    validate_fields(value, node, errors);
}

/// Checks all embedded objects in the fields of a value.
pub(super) fn validate_fields(value: &Cursor<'_>, node: &Structural, errors: &mut FieldErrors) {
    if !node.below.embedded {
        return;
    }
    let mut fields = FieldsInOrder::of(node);
    for (name, field) in value.fields() {
        match (fields.declared(name), &node.additional) {
            (Some(child), _) => validate(&field, child, errors),
            (None, Additional::Schema(child)) => validate(&field.as_entry(), child, errors),
            (None, Additional::Unset | Additional::Bool(_)) => {}
        }
    }
}

fn validate_embedded(value: &Cursor<'_>, errors: &mut FieldErrors) {
    let map = value.map_or_empty("");
    for name in ["apiVersion", "kind"] {
        let path = value.at(name);
        match map.get(name) {
            None => errors.required(path, ""),
            Some(Value::String(text)) if text.is_empty() => errors.invalid(path, "", "must not be empty"),
            Some(Value::String(text)) if name == "apiVersion" => {
                if text.matches('/').count() > 1 {
                    let detail = format!("unexpected GroupVersion string: {text}");
                    errors.invalid(path, text.as_str(), detail);
                }
            }
            Some(Value::String(text)) => {
                let problems = names::dns1035_label(&text.to_lowercase(), false);
                if !problems.is_empty() {
                    let rule = problems.join(",");
                    let detail = format!("may have mixed case, but should otherwise match: {rule}");
                    errors.invalid(path, text.as_str(), detail);
                }
            }
            Some(other) => errors.invalid(path, other.clone(), "must be a string"),
        }
    }
    if let Some(metadata) = map.get("metadata") {
        let mut object = Object::default();
        object.insert("metadata".into(), metadata.clone());
        if object.name().is_empty() {
            object.metadata_mut().insert("name".into(), json!("fakename"));
        }
        let mut found = FieldErrors::new();
        let namespaced = !object.namespace().is_empty();
        rules::validate_object(&object, namespaced, &mut found);
        for error in found.iter() {
            let mut error = error.clone();
            error.path = value.path().child(&error.path.to_string());
            errors.push(error);
        }
    }
}
