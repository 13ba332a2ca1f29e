//! Validation of `metav1.Condition`, which newer kinds use (`pkg/apis/meta/v1/validation`).

use std::collections::BTreeSet;

use super::cursor::Cursor;
use super::{labels, names};
use crate::api::field::FieldErrors;

const REASON_MAX: usize = 1_024;
const MESSAGE_MAX: usize = 32 * 1_024;
const REASON_FORMAT: &str = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?";

/// Checks the conditions in a list (`ValidateConditions`).
pub(crate) fn validate_conditions(conditions: &Cursor<'_>, errors: &mut FieldErrors) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for condition in conditions.items("") {
        let kind = condition.text("type");
        if seen.contains(&kind) {
            errors.duplicate(condition.at("type"), kind);
        }
        seen.insert(kind);
        validate_condition(&condition, errors);
    }
}

fn validate_condition(condition: &Cursor<'_>, errors: &mut FieldErrors) {
    labels::validate_key(&condition.at("type"), errors);
    let (status, supported) = (condition.text("status"), ["False", "True", "Unknown"]);
    if !supported.contains(&status) {
        errors.not_supported(condition.at("status"), status, &supported);
    }
    if let Some(generation) = condition.integer("observedGeneration").filter(|it| *it < 0) {
        let text = "must be greater than or equal to zero";
        errors.invalid(condition.at("observedGeneration"), generation, text);
    }
    if !condition.is_set("lastTransitionTime") {
        errors.required(condition.at("lastTransitionTime"), "");
    }
    let reason = condition.at("reason");
    if reason.check_required(errors) {
        if !is_reason(reason.as_text()) {
            let rule = "a condition reason must start with alphabetic character, optionally followed by a string of \
                        alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'";
            let examples = ["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"];
            errors.invalid(
                reason,
                reason.as_text(),
                names::mismatch(rule, REASON_FORMAT, &examples),
            );
        }
        if reason.as_text().len() > REASON_MAX {
            errors.too_long(reason.path(), REASON_MAX);
        }
    }
    if condition.text("message").len() > MESSAGE_MAX {
        errors.too_long(condition.at("message").path(), MESSAGE_MAX);
    }
}

fn is_reason(text: &str) -> bool {
    let inside = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | ',' | ':');
    text.starts_with(|it: char| it.is_ascii_alphabetic())
        && text.ends_with(|it: char| it.is_ascii_alphanumeric() || it == '_')
        && text.chars().all(inside)
}
