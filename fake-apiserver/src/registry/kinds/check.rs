//! The checks that recur in every kind: required, one of, not negative, a right name. Paths are made only for errors.

use serde_json::Value;

use super::names;
use super::view::{JsonMap, integer, is_set, text, value_of};
use crate::api::field::{FieldErrors, FieldPath};

/// What a negative number is told.
pub(crate) const NEGATIVE: &str = "must be greater than or equal to 0";

/// What a number that must be positive is told.
pub(crate) const NOT_POSITIVE: &str = "must be greater than zero";

/// What a field that may never change is told.
pub(crate) const IMMUTABLE: &str = "field is immutable";

/// One error for each text of what is wrong with a string.
pub(crate) fn wrong(texts: Vec<String>, value: &str, path: impl Fn() -> FieldPath, errors: &mut FieldErrors) {
    for text in texts {
        errors.invalid(path(), value, text);
    }
}

/// A string that is required; whether it is there.
pub(crate) fn required(map: &JsonMap, key: &str, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    let there = !text(map, key).is_empty();
    if !there {
        errors.required(path.child(key), "");
    }
    there
}

/// A string that is required and must be a DNS-1123 label.
pub(crate) fn required_label(map: &JsonMap, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if required(map, key, path, errors) {
        optional_label(map, key, path, errors);
    }
}

/// A string that, if there, must be a DNS-1123 label.
pub(crate) fn optional_label(map: &JsonMap, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let name = text(map, key);
    if !name.is_empty() {
        wrong(names::dns1123_label(name, false), name, || path.child(key), errors);
    }
}

/// A string that, if there, must be a DNS-1123 subdomain.
pub(crate) fn optional_subdomain(map: &JsonMap, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let name = text(map, key);
    if !name.is_empty() {
        wrong(names::dns1123_subdomain(name, false), name, || path.child(key), errors);
    }
}

/// A string that must be one of these.
pub(crate) fn required_one_of(
    map: &JsonMap,
    key: &str,
    supported: &[&str],
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    match text(map, key) {
        "" => errors.required(path.child(key), ""),
        _ => optional_one_of(map, key, supported, path, errors),
    }
}

/// A string that, if the field is there, must be one of these.
pub(crate) fn optional_one_of(
    map: &JsonMap,
    key: &str,
    supported: &[&str],
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let value = text(map, key);
    if is_set(map, key) && !supported.contains(&value) {
        errors.not_supported(path.child(key), value, supported);
    }
}

/// A number that, if there, must not be negative.
pub(crate) fn not_negative(map: &JsonMap, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(value) = integer(map, key).filter(|value| *value < 0) {
        errors.invalid(path.child(key), value, NEGATIVE);
    }
}

/// A number that, if there, must lie between two others.
pub(crate) fn in_range(map: &JsonMap, key: &str, range: (i64, i64), path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(value) = integer(map, key).filter(|value| *value < range.0 || *value > range.1) {
        errors.invalid(path.child(key), value, between(range));
    }
}

/// What a number outside of a range is told.
pub(crate) fn between(range: (i64, i64)) -> String {
    format!("must be between {} and {}, inclusive", range.0, range.1)
}

/// A field that must be as it was.
pub(crate) fn unchanged(map: &JsonMap, old: &JsonMap, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if !super::view::same(map, old, key) {
        errors.invalid(path.child(key), value_of(map, key), IMMUTABLE);
    }
}

/// A number of a port.
pub(crate) fn port_number(port: i64, path: impl Fn() -> FieldPath, errors: &mut FieldErrors) {
    if let Some(text) = names::port_number(port) {
        errors.invalid(path(), port, text);
    }
}

/// A port by its number or its name.
pub(crate) fn port(map: &JsonMap, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    match map.get(key) {
        Some(Value::String(name)) => wrong(names::port_name(name), name, || path.child(key), errors),
        other => port_number(other.and_then(Value::as_i64).unwrap_or(0), || path.child(key), errors),
    }
}
