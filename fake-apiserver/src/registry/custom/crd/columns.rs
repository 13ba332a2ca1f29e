//! Validation of the printer columns, the scale subresource and the selectable fields of a CRD (rule O4).

use std::collections::BTreeSet;

use super::field_path;
use crate::api::field::FieldErrors;
use crate::api::json::Map;
use crate::registry::types::cursor::Cursor;

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

/// Maximum number of distinct `selectableFields` in a version.
const MAX_SELECTABLE_FIELDS: usize = 8;

/// Checks one item of `additionalPrinterColumns`.
pub(super) fn validate_column(column: &Cursor<'_>, errors: &mut FieldErrors) {
    column.at("name").check_required(errors);
    let types = format!("must be one of {}", COLUMN_TYPES.join(","));
    match column.text("type") {
        "" => errors.required(column.at("type"), types),
        known if COLUMN_TYPES.contains(&known) => {}
        other => errors.invalid(column.at("type"), other, types),
    }
    let format = column.text("format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let text = format!("must be one of {}", COLUMN_FORMATS.join(","));
        errors.invalid(column.at("format"), format, text);
    }
    let json_path = column.at("JSONPath");
    let json_path = json_path.in_other(column.get("jsonPath"));
    if json_path.check_required(errors) {
        check_simple(&json_path, errors);
    }
}

/// Checks that a path starts with a dot.
fn check_simple(json_path: &Cursor<'_>, errors: &mut FieldErrors) -> bool {
    let is_simple = json_path.as_text().starts_with('.');
    if !is_simple {
        errors.invalid(
            json_path,
            json_path.as_text(),
            "must be a simple json path starting with .",
        );
    }
    is_simple
}

/// Checks `subresources.scale`.
pub(super) fn validate_scale(scale: &Cursor<'_>, errors: &mut FieldErrors) {
    for (key, prefix) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let path = scale.at(key);
        if path.check_required(errors) && check_simple(&path, errors) && !path.as_text().starts_with(prefix) {
            let prefix = prefix.trim_end_matches('.');
            errors.invalid(path, path.as_text(), format!("should be a json path under {prefix}"));
        }
    }
    let path = scale.at("labelSelectorPath");
    let selector = path.as_text();
    if !selector.is_empty()
        && check_simple(&path, errors)
        && !selector.starts_with(".spec.")
        && !selector.starts_with(".status.")
    {
        errors.invalid(path, selector, "should be a json path under either .spec or .status");
    }
}

/// Checks `selectableFields` against the schema. `is_shared` is set if all versions have the same fields.
pub(super) fn validate_selectable(
    fields: &Cursor<'_>,
    schema: Option<&Map>,
    is_shared: bool,
    errors: &mut FieldErrors,
) {
    let Some(schema) = schema else {
        let text = match is_shared {
            true => "may only be set when validations.schema is included",
            false => "may only be set when `version.schema.openAPIV3Schema` is not included",
        };
        return errors.invalid(fields, "", text);
    };
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for field in fields.items("") {
        let path = field.at("jsonPath");
        if !path.check_required(errors) {
            continue;
        }
        let json_path = field.text("jsonPath");
        let (first, kind) = match field_path::find(json_path, &Cursor::root(schema), false) {
            Ok(found) => found,
            Err(why) => {
                errors.invalid(path, json_path, format!("is an invalid path: {why}"));
                continue;
            }
        };
        if first == "metadata" {
            errors.invalid(path, json_path, "must not point to fields in metadata");
        }
        if !matches!(kind.as_str(), "string" | "boolean" | "integer") {
            let text = "must point to a field of type string, boolean or integer. Enum string fields and strings \
                        with formats are allowed.";
            errors.invalid(path, json_path, text);
        }
        if seen.contains(&json_path) {
            errors.duplicate(path, json_path);
        } else {
            seen.insert(json_path);
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS {
        errors.too_many(fields, seen.len(), MAX_SELECTABLE_FIELDS);
    }
}
