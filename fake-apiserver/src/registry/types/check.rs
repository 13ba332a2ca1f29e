//! The checks that recur in every kind: required, one of, not negative, a right name.
//!
//! Rules that read with a [`Cursor`] use its `check_*` methods. The functions below do the same for rules that still
//! carry a map, a key and a path.

use serde_json::Value;

use super::cursor::Cursor;
use super::names;
use super::view::JsonMap;
use crate::api::field::{FieldErrors, FieldPath};

/// Error for a negative number.
pub(crate) const NEGATIVE: &str = "must be greater than or equal to 0";

/// Error for a number that must be positive.
pub(crate) const NOT_POSITIVE: &str = "must be greater than zero";

/// Error for a field that may never change.
pub(crate) const IMMUTABLE: &str = "field is immutable";

impl Cursor<'_> {
    /// Adds an error for each text, as a name rule returns them for this string.
    pub(crate) fn check_texts(&self, texts: Vec<String>, errors: &mut FieldErrors) {
        for text in texts {
            errors.invalid(self, self.as_text(), text);
        }
    }

    /// Checks that the string is not empty; returns `true` if it is not.
    pub(crate) fn check_required(&self, errors: &mut FieldErrors) -> bool {
        let is_there = !self.as_text().is_empty();
        if !is_there {
            errors.required(self, "");
        }
        is_there
    }

    /// Checks that the string, unless it is empty, is a DNS-1123 label.
    pub(crate) fn check_label(&self, errors: &mut FieldErrors) {
        if !self.as_text().is_empty() {
            self.check_texts(names::dns1123_label(self.as_text(), false), errors);
        }
    }

    /// Checks that the string, unless it is empty, is a DNS-1123 subdomain.
    pub(crate) fn check_subdomain(&self, errors: &mut FieldErrors) {
        if !self.as_text().is_empty() {
            self.check_texts(names::dns1123_subdomain(self.as_text(), false), errors);
        }
    }

    /// Checks that the field, unless it is absent, is one of these strings.
    pub(crate) fn check_one_of(&self, supported: &[&str], errors: &mut FieldErrors) {
        if self.is_set("") && !supported.contains(&self.as_text()) {
            errors.not_supported(self, self.as_text(), supported);
        }
    }

    /// Checks that the number, unless it is absent, is not negative.
    pub(crate) fn check_not_negative(&self, errors: &mut FieldErrors) {
        if let Some(value) = self.integer("").filter(|value| *value < 0) {
            errors.invalid(self, value, NEGATIVE);
        }
    }

    /// Checks that the number, unless it is absent, lies between two others.
    pub(crate) fn check_range(&self, range: (i64, i64), errors: &mut FieldErrors) {
        if let Some(value) = self.integer("").filter(|value| *value < range.0 || *value > range.1) {
            errors.invalid(self, value, between(range));
        }
    }

    /// Checks that the field holds what it held in the stored object, at whose same place `old` is.
    pub(crate) fn check_unchanged(&self, old: &Cursor<'_>, errors: &mut FieldErrors) {
        if !self.same(old, "") {
            errors.invalid(self, self.to_value(), IMMUTABLE);
        }
    }

    /// The same of a string that Go has no pointer to: an absent one is an empty one.
    pub(crate) fn check_text_unchanged(&self, old: &Cursor<'_>, errors: &mut FieldErrors) {
        if self.as_text() != old.as_text() {
            errors.invalid(self, self.as_text(), IMMUTABLE);
        }
    }

    /// Checks that the number is that of a port; an absent one is 0.
    pub(crate) fn check_port_number(&self, errors: &mut FieldErrors) {
        let port = self.integer("").unwrap_or(0);
        if let Some(text) = names::port_number(port) {
            errors.invalid(self, port, text);
        }
    }
}

/// One error for each text of what is wrong with a string.
pub(crate) fn wrong(texts: Vec<String>, value: &str, path: impl Fn() -> FieldPath, errors: &mut FieldErrors) {
    for text in texts {
        errors.invalid(path(), value, text);
    }
}

/// See [`Cursor::check_required`].
pub(crate) fn required(map: &JsonMap, key: &str, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    Cursor::map_at(map, path).at(key).check_required(errors)
}

/// A string that is required and must be a DNS-1123 label.
pub(crate) fn required_label(map: &JsonMap, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if required(map, key, path, errors) {
        optional_label(map, key, path, errors);
    }
}

/// See [`Cursor::check_label`].
pub(crate) fn optional_label(map: &JsonMap, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    Cursor::map_at(map, path).at(key).check_label(errors);
}

/// See [`Cursor::check_subdomain`].
pub(crate) fn optional_subdomain(map: &JsonMap, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    Cursor::map_at(map, path).at(key).check_subdomain(errors);
}

/// A string that must be one of these.
pub(crate) fn required_one_of(
    map: &JsonMap,
    key: &str,
    supported: &[&str],
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if required(map, key, path, errors) {
        optional_one_of(map, key, supported, path, errors);
    }
}

/// See [`Cursor::check_one_of`].
pub(crate) fn optional_one_of(
    map: &JsonMap,
    key: &str,
    supported: &[&str],
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    Cursor::map_at(map, path).at(key).check_one_of(supported, errors);
}

/// See [`Cursor::check_not_negative`].
pub(crate) fn not_negative(map: &JsonMap, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    Cursor::map_at(map, path).at(key).check_not_negative(errors);
}

/// See [`Cursor::check_range`].
pub(crate) fn in_range(map: &JsonMap, key: &str, range: (i64, i64), path: &FieldPath, errors: &mut FieldErrors) {
    Cursor::map_at(map, path).at(key).check_range(range, errors);
}

/// The text for a number outside of a range.
pub(crate) fn between(range: (i64, i64)) -> String {
    format!("must be between {} and {}, inclusive", range.0, range.1)
}

/// See [`Cursor::check_unchanged`].
pub(crate) fn unchanged(map: &JsonMap, old: &JsonMap, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let old = Cursor::map_at(old, path);
    Cursor::map_at(map, path).at(key).check_unchanged(&old.at(key), errors);
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
