//! Validation of the paths a CRD names: printer columns, scale and selectable fields (rule O4).

use serde_json::{Map, Value};

use super::field_path;
use super::node::Node;
use crate::api::field::{FieldErrors, FieldPath};

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

/// Most distinct `selectableFields` of a version.
const MAX_SELECTABLE_FIELDS: usize = 8;

/// Checks one of `additionalPrinterColumns`.
pub(super) fn validate_column(column: &Value, path: &FieldPath, errors: &mut FieldErrors) {
    let empty = Map::new();
    let column = Node(column.as_object().unwrap_or(&empty));
    if column.text("name").is_empty() {
        errors.required(path.child("name"), "");
    }
    let types = format!("must be one of {}", COLUMN_TYPES.join(","));
    match column.text("type") {
        "" => errors.required(path.child("type"), types),
        known if COLUMN_TYPES.contains(&known) => {}
        other => errors.invalid(path.child("type"), other, types),
    }
    let format = column.text("format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let text = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.invalid(path.child("format"), format, text);
    }
    match column.text("jsonPath") {
        "" => errors.required(path.child("JSONPath"), ""),
        json_path => {
            check_simple(json_path, &path.child("JSONPath"), errors);
        }
    }
}

/// Checks that a path starts with a dot, which is all that makes it simple.
fn check_simple(json_path: &str, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    let is_simple = json_path.starts_with('.');
    if !is_simple {
        errors.invalid(path.clone(), json_path, "must be a simple json path starting with .");
    }
    is_simple
}

/// Checks `subresources.scale`; `path` is that of `subresources`.
pub(super) fn validate_scale(scale: Node<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("scale");
    for (key, prefix) in [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")] {
        let path = path.child(key);
        match scale.text(key) {
            "" => errors.required(path, ""),
            it if !check_simple(it, &path, errors) || it.starts_with(&format!("{prefix}.")) => {}
            it => errors.invalid(path, it, format!("should be a json path under {prefix}")),
        }
    }
    let path = path.child("labelSelectorPath");
    let selector = scale.text("labelSelectorPath");
    if !selector.is_empty()
        && check_simple(selector, &path, errors)
        && !selector.starts_with(".spec.")
        && !selector.starts_with(".status.")
    {
        errors.invalid(path, selector, "should be a json path under either .spec or .status");
    }
}

/// Checks `selectableFields` of a version, or of all of them, against the schema.
pub(super) fn validate_selectable(
    version: Node<'_>,
    schema: Option<&Map<String, Value>>,
    is_shared: bool,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let Some(schema) = schema else {
        let text = match is_shared {
            true => "may only be set when validations.schema is included",
            false => "may only be set when `version.schema.openAPIV3Schema` is not included",
        };
        return errors.invalid(path.clone(), "", text);
    };
    let mut seen: Vec<&str> = Vec::new();
    for (index, field) in version.list("selectableFields").iter().enumerate() {
        let path = path.index(index).child("jsonPath");
        let json_path = field.get("jsonPath").and_then(Value::as_str).unwrap_or_default();
        if json_path.is_empty() {
            errors.required(path, "");
            continue;
        }
        let (first, kind) = match field_path::find(json_path, Node(schema), false) {
            Ok((first, field)) => (first, field.text("type")),
            Err(why) => {
                errors.invalid(path, json_path, format!("is an invalid path: {why}"));
                continue;
            }
        };
        if first == "metadata" {
            errors.invalid(path.clone(), json_path, "must not point to fields in metadata");
        }
        if !matches!(kind, "string" | "boolean" | "integer") {
            let text = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                        with formats are allowed.";
            errors.invalid(path.clone(), json_path, text);
        }
        if seen.contains(&json_path) {
            errors.duplicate(path, json_path);
        } else {
            seen.push(json_path);
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS {
        errors.too_many(path.clone(), seen.len(), MAX_SELECTABLE_FIELDS);
    }
}
