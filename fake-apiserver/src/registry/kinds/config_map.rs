//! The strategy of ConfigMaps.

use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::hidden::{self, Hidden};
use crate::registry::types::names;

/// Maximum total size of the values of one ConfigMap or Secret, in bytes.
pub(crate) const DATA_MAX: usize = 1024 * 1024;

/// The strategy of ConfigMaps.
#[derive(Debug)]
pub(crate) struct ConfigMap;

impl Strategy for ConfigMap {
    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let (data, binary) = (object.at("data"), object.at("binaryData"));
        let mut size = 0;
        for (key, value) in data.entries("") {
            validate_key(key, &value, errors);
            if binary.has_entry(key) {
                errors.invalid(value, key, "duplicate of key present in binaryData");
            }
            size += value.as_text().len();
        }
        for (key, value) in binary.entries("") {
            validate_key(key, &value, errors);
            size += decoded_length(value.as_text());
        }
        if size > DATA_MAX {
            errors.too_long(FieldPath::new("[]"), DATA_MAX);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        // An absent `data` is defaulted to an empty map (`SetDefaults_ConfigMap`).
        let fields = [("data", &hidden::NONE), ("binaryData", context.hidden)];
        validate_immutable(object, old, &fields, errors);
        self.validate(object, errors);
    }
}

/// Checks a key of a ConfigMap or Secret.
pub(crate) fn validate_key(key: &str, value: &Cursor<'_>, errors: &mut FieldErrors) {
    value.refuse(key, names::config_map_key(key), errors);
}

/// Returns the decoded length of a base64 string, in bytes.
pub(crate) fn decoded_length(text: &str) -> usize {
    let text = text.trim_end_matches('=');
    text.len() / 4 * 3 + (text.len() % 4).saturating_sub(1)
}

/// Checks that `fields` do not change once `immutable` is set (rule C8). The facts about the body determine if an empty
/// map differs from an absent one.
pub(crate) fn validate_immutable(object: &Object, old: &Object, fields: &[(&str, &Hidden)], errors: &mut FieldErrors) {
    let (object, old) = (Cursor::root(object), Cursor::root(old));
    if old.flag("immutable") != Some(true) {
        return;
    }
    let text = "field is immutable when `immutable` is set";
    if object.flag("immutable") != Some(true) {
        errors.forbidden(object.at("immutable"), text);
    }
    for (field, hidden) in fields {
        let is_changed = match object.is_empty(field) && old.is_empty(field) {
            // Go compares with `reflect.DeepEqual`, for which an empty map differs from an absent one.
            true => hidden.has_emptied(field),
            false => !object.same(&old, field),
        };
        if is_changed {
            errors.forbidden(object.at(field), text);
        }
    }
}
