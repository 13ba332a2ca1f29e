//! ConfigMaps.

use serde_json::{Map, Value, json};

use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, is_empty};
use crate::registry::types::names;

/// Bytes that the values of one ConfigMap or Secret may have together.
pub(crate) const DATA_MAX: usize = 1024 * 1024;

/// The strategy of ConfigMaps.
#[derive(Debug)]
pub(crate) struct ConfigMap;

impl Strategy for ConfigMap {
    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let data = at(object, "data").and_then(Value::as_object);
        let binary = at(object, "binaryData").and_then(Value::as_object);
        let mut size = 0;
        for (key, value) in data.into_iter().flatten() {
            validate_key(key, "data", errors);
            if binary.is_some_and(|binary| binary.contains_key(key)) {
                let path = FieldPath::new("data").key(key);
                errors.invalid(path, key.as_str(), "duplicate of key present in binaryData");
            }
            size += value.as_str().map_or(0, str::len);
        }
        for (key, value) in binary.into_iter().flatten() {
            validate_key(key, "binaryData", errors);
            size += decoded_length(value);
        }
        if size > DATA_MAX {
            errors.too_long(FieldPath::new("[]"), DATA_MAX);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        validate_immutable(object, old, &["data", "binaryData"], errors);
        self.validate(object, errors);
    }
}

/// Checks a key of a ConfigMap or Secret.
pub(crate) fn validate_key(key: &str, field: &str, errors: &mut FieldErrors) {
    for text in names::config_map_key(key) {
        errors.invalid(FieldPath::new(field).key(key), key, text);
    }
}

/// Bytes that base64 text stands for.
pub(crate) fn decoded_length(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default().trim_end_matches('=');
    text.len() / 4 * 3 + (text.len() % 4).saturating_sub(1)
}

/// Checks that nothing changes once `immutable` is set (rule C8).
pub(crate) fn validate_immutable(object: &Object, old: &Object, fields: &[&str], errors: &mut FieldErrors) {
    if old.get("immutable") != Some(&json!(true)) {
        return;
    }
    if object.get("immutable") != Some(&json!(true)) {
        let text = "field is immutable when `immutable` is set";
        errors.forbidden(FieldPath::new("immutable"), text);
    }
    for field in fields {
        let same = |it: &Map<String, Value>, other: &Map<String, Value>| {
            (is_empty(it, field) && is_empty(other, field)) || it.get(*field) == other.get(*field)
        };
        if !same(object, old) {
            let text = "field is immutable when `immutable` is set";
            errors.forbidden(FieldPath::new(field), text);
        }
    }
}
