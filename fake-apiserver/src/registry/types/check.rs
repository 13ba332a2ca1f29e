//! Checks shared by many kinds: required fields, supported values, non-negative numbers, valid names.

use super::cursor::Cursor;
use super::names;
use crate::api::field::FieldErrors;
use crate::api::json::Value;

/// Error for a negative number.
pub(crate) const NEGATIVE: &str = "must be greater than or equal to 0";

/// Error for a number that must be positive.
pub(crate) const NOT_POSITIVE: &str = "must be greater than zero";

/// Error for a change of an immutable field.
pub(crate) const IMMUTABLE: &str = "field is immutable";

impl Cursor<'_> {
    /// Adds an error for each message in `texts`. The messages are the result of a name rule for this string.
    pub(crate) fn check_texts(&self, texts: Vec<String>, errors: &mut FieldErrors) {
        self.refuse(self.as_text(), texts, errors);
    }

    /// Adds an error at this path for each message in `texts`. The errors show the value `shown`.
    pub(crate) fn refuse(&self, shown: &str, texts: Vec<String>, errors: &mut FieldErrors) {
        for text in texts {
            errors.invalid(self, shown, text);
        }
    }

    /// Adds an error for each message that the name rule `rule` returns for this string.
    pub(crate) fn check_name(&self, rule: impl FnOnce(&str) -> Vec<String>, errors: &mut FieldErrors) {
        self.check_texts(rule(self.as_text()), errors);
    }

    /// Checks that the string is set, and returns `true` if so.
    pub(crate) fn check_required(&self, errors: &mut FieldErrors) -> bool {
        let is_there = !self.as_text().is_empty();
        if !is_there {
            errors.required(self, "");
        }
        is_there
    }

    /// Checks that the string is a DNS-1123 label, unless it is empty.
    pub(crate) fn check_label(&self, errors: &mut FieldErrors) {
        if !self.as_text().is_empty() {
            self.check_texts(names::dns1123_label(self.as_text(), false), errors);
        }
    }

    /// Checks that the string is a DNS-1123 subdomain, unless it is empty.
    pub(crate) fn check_subdomain(&self, errors: &mut FieldErrors) {
        if !self.as_text().is_empty() {
            self.check_texts(names::dns1123_subdomain(self.as_text(), false), errors);
        }
    }

    /// Checks that the field is one of these strings, unless it is absent.
    pub(crate) fn check_one_of(&self, supported: &[&str], errors: &mut FieldErrors) {
        if self.is_set("") && !supported.contains(&self.as_text()) {
            errors.not_supported(self, self.as_text(), supported);
        }
    }

    /// Checks that the string is one of these. An absent string is treated as empty.
    pub(crate) fn check_supported(&self, supported: &[&str], errors: &mut FieldErrors) {
        if !supported.contains(&self.as_text()) {
            errors.not_supported(self, self.as_text(), supported);
        }
    }

    /// Checks that the string is set and supported.
    pub(crate) fn check_required_one_of(&self, supported: &[&str], errors: &mut FieldErrors) {
        if self.check_required(errors) {
            self.check_supported(supported, errors);
        }
    }

    /// Checks that the string is set and a DNS-1123 label.
    pub(crate) fn check_required_label(&self, errors: &mut FieldErrors) {
        if self.check_required(errors) {
            self.check_label(errors);
        }
    }

    /// Checks that the number is not negative, unless it is absent.
    pub(crate) fn check_not_negative(&self, errors: &mut FieldErrors) {
        if let Some(value) = self.integer("").filter(|value| *value < 0) {
            errors.invalid(self, value, NEGATIVE);
        }
    }

    /// Checks that the number is within a range, unless it is absent.
    pub(crate) fn check_range(&self, range: (i64, i64), errors: &mut FieldErrors) {
        if let Some(value) = self.integer("").filter(|value| *value < range.0 || *value > range.1) {
            errors.invalid(self, value, between(range));
        }
    }

    /// Checks that the field equals `old`, the same field of the stored object.
    pub(crate) fn check_unchanged(&self, old: &Cursor<'_>, errors: &mut FieldErrors) {
        if !self.same(old, "") {
            errors.invalid(self, self.to_value(), IMMUTABLE);
        }
    }

    /// Like [`check_unchanged`](Self::check_unchanged), for a string that is not a pointer in Go: absent and empty are
    /// equal.
    pub(crate) fn check_text_unchanged(&self, old: &Cursor<'_>, errors: &mut FieldErrors) {
        if self.as_text() != old.as_text() {
            errors.invalid(self, self.as_text(), IMMUTABLE);
        }
    }

    /// Checks that the number is a valid port. An absent number is treated as 0.
    pub(crate) fn check_port_number(&self, errors: &mut FieldErrors) {
        let port = self.integer("").unwrap_or(0);
        if let Some(text) = names::port_number(port) {
            errors.invalid(self, port, text);
        }
    }

    /// Checks a port that is a number or a name.
    pub(crate) fn check_port(&self, errors: &mut FieldErrors) {
        match self.get("") {
            Some(Value::String(_)) => self.check_name(names::port_name, errors),
            _ => self.check_port_number(errors),
        }
    }
}

/// Returns the error message for a number outside of a range.
pub(crate) fn between(range: (i64, i64)) -> String {
    format!("must be between {} and {}, inclusive", range.0, range.1)
}
