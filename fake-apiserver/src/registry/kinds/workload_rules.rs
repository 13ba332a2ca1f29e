//! Rules shared by workloads: selectors, templates, replica counts, and numbers or percentages.

use std::num::IntErrorKind;

use super::metadata::invalid_printed;
use super::pod::validation::Template;
use crate::api::field::{FieldErrors, quote};
use crate::api::json::{Map, Value};
use crate::registry::types::check::{IMMUTABLE, NEGATIVE};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_value, items_mut};
use crate::registry::types::labels;
use crate::registry::types::names;

/// Error for a template with labels that the selector does not match.
const MISMATCH: &str = "`selector` does not match template `labels`";

/// Returns the error of Go's `strconv.ParseInt` for a 64-bit integer.
pub(super) fn parse_int_error(text: &str) -> Option<String> {
    let why = match text.parse::<i64>().err()?.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    Some(format!("strconv.ParseInt: parsing {}: {why}", quote(text)))
}

/// A parsed label selector.
pub(crate) enum Selection<'a> {
    /// An absent selector, which does not match any labels.
    Nothing,
    /// An empty selector, which matches all labels.
    Everything,
    /// A valid selector with requirements.
    Matching(&'a Cursor<'a>),
    /// An invalid selector.
    Wrong,
}

impl<'a> Selection<'a> {
    /// Parses a `LabelSelector`.
    pub(crate) fn of(selector: &'a Cursor<'a>) -> Self {
        if !selector.is_set("") {
            return Selection::Nothing;
        }
        if selector.is_empty("matchLabels") && selector.is_empty("matchExpressions") {
            return Selection::Everything;
        }
        let mut wrong = selector
            .entries("matchLabels")
            .any(|(key, value)| !names::is_qualified_name(key) || !names::is_label_value(value.as_text()));
        for expression in selector.items("matchExpressions") {
            wrong |= !names::is_qualified_name(expression.text("key"));
            wrong |= expression.texts("values").any(|value| !names::is_label_value(value));
            wrong |= match expression.text("operator") {
                "In" | "NotIn" => expression.is_empty("values"),
                "Exists" | "DoesNotExist" => !expression.is_empty("values"),
                _ => true,
            };
        }
        if wrong {
            Selection::Wrong
        } else {
            Selection::Matching(selector)
        }
    }

    /// Returns `true` if the selector matches these labels.
    pub(crate) fn matches(&self, labels: &Cursor<'_>) -> bool {
        let selector = match self {
            Selection::Nothing | Selection::Wrong => return false,
            Selection::Everything => return true,
            Selection::Matching(selector) => selector,
        };
        selector
            .entries("matchLabels")
            .all(|(key, value)| labels.entry(key).same(&value, ""))
            && selector.items("matchExpressions").all(|expression| {
                let label = labels.entry(expression.text("key"));
                let is_listed = || expression.texts("values").any(|value| value == label.as_text());
                match expression.text("operator") {
                    "In" => label.is_set("") && is_listed(),
                    "NotIn" => !(label.is_set("") && is_listed()),
                    "Exists" => label.is_set(""),
                    _ => !label.is_set(""),
                }
            })
    }
}

/// Formats a selector as JSON, with its fields in the order of the Go type.
fn print_selector(selector: &Cursor<'_>) -> String {
    if !selector.is_set("") {
        return "null".to_owned();
    }
    let fields = ["matchLabels", "matchExpressions"].into_iter();
    let fields = fields.filter_map(|field| Some(format!("\"{field}\":{}", selector.get(field)?)));
    format!("{{{}}}", fields.collect::<Vec<String>>().join(","))
}

/// Adds an error of the form `path: Invalid value: <selector>: detail`.
pub(crate) fn wrong_selector(selector: &Cursor<'_>, detail: &str, errors: &mut FieldErrors) {
    invalid_printed(selector, &print_selector(selector), detail, errors);
}

/// Checks that the selector does not change.
pub(crate) fn unchanged_selector(spec: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
    if !spec.same(old, "selector") {
        wrong_selector(&spec.at("selector"), IMMUTABLE, errors);
    }
}

/// Checks that the selector is set, is valid, and does not match everything. `kind` is used in the error message.
pub(crate) fn validate_selector(selector: &Cursor<'_>, kind: &str, errors: &mut FieldErrors) {
    if !selector.is_set("") {
        errors.required(selector, "");
        return;
    }
    labels::validate_selector(selector, errors);
    if selector.is_empty("matchLabels") && selector.is_empty("matchExpressions") {
        wrong_selector(selector, &format!("empty selector is invalid for {kind}"), errors);
    }
}

/// Adds an error if the selector does not match the template's labels.
pub(crate) fn validate_selected(selection: &Selection<'_>, template: &Template<'_>, errors: &mut FieldErrors) {
    let labels = template.template.at("metadata.labels");
    if !selection.matches(&labels) {
        errors.invalid(labels, labels.to_value(), MISMATCH);
    }
}

/// Checks the template of a workload that keeps its pods running. The selector must match its labels, and the pods must
/// be valid, always restart, and not have a deadline. `kind` is used in the error message about deadlines.
pub(crate) fn validate_template(spec: &Cursor<'_>, kind: &str, errors: &mut FieldErrors) {
    let (selector, template) = (spec.at("selector"), Template::of(spec));
    match Selection::of(&selector) {
        Selection::Wrong => {
            wrong_selector(&selector, "invalid label selector", errors);
            return;
        }
        selection => validate_selected(&selection, &template, errors),
    }
    template.validate(errors);
    validate_always(&template, kind, errors);
}

/// Checks that pods always restart and do not have a deadline. Used for controllers that keep their pods running.
pub(crate) fn validate_always(template: &Template<'_>, kind: &str, errors: &mut FieldErrors) {
    let pod_spec = template.template.at("spec");
    pod_spec.at("restartPolicy").check_supported(&["Always"], errors);
    if let Some(deadline) = pod_spec.present("activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(deadline, detail);
    }
}

/// Checks that a field is a non-negative number or a percentage.
pub(crate) fn validate_number_or_percent(field: &Cursor<'_>, errors: &mut FieldErrors) {
    match field.get("") {
        Some(Value::String(written)) => {
            if let Some(detail) = names::percent(written) {
                errors.invalid(field, written.as_str(), detail);
            }
        }
        _ => {
            let number = field.integer("").unwrap_or(0);
            if number < 0 {
                errors.invalid(field, number, NEGATIVE);
            }
        }
    }
}

/// Returns the number, or the number before the percent sign; 0 for any other value.
pub(crate) fn number_or_percent(field: &Cursor<'_>) -> i64 {
    match field.get("") {
        Some(Value::String(written)) => written.strip_suffix('%').unwrap_or(written).parse().unwrap_or(0),
        _ => field.integer("").unwrap_or(0),
    }
}

/// Checks that a percentage is at most 100 %.
pub(crate) fn validate_at_most_all(field: &Cursor<'_>, errors: &mut FieldErrors) {
    if let Some(Value::String(written)) = field.get("")
        && names::percent(written).is_none()
        && written.trim_end_matches('%').parse().unwrap_or(u64::MAX) > 100
    {
        errors.invalid(field, written.as_str(), "must not be greater than 100%");
    }
}

/// Checks that the counts of a status are not negative.
pub(crate) fn validate_counts(status: &Cursor<'_>, counts: &[&str], errors: &mut FieldErrors) {
    for count in counts {
        status.at(count).check_not_negative(errors);
    }
}

/// Checks that the counts `parts` in the status are not greater than `status.replicas`.
pub(crate) fn validate_parts(status: &Cursor<'_>, parts: &[&str], errors: &mut FieldErrors) {
    let count = |field: &str| status.integer(field).unwrap_or(0);
    for part in parts.iter().filter(|part| count(part) > count("replicas")) {
        errors.invalid(status.at(part), count(part), "cannot be greater than status.replicas");
    }
}

/// Checks that the status does not have more available replicas than ready replicas.
pub(crate) fn validate_available(status: &Cursor<'_>, detail: &str, errors: &mut FieldErrors) {
    let available = status.integer("availableReplicas").unwrap_or(0);
    if available > status.integer("readyReplicas").unwrap_or(0) {
        errors.invalid(status.at("availableReplicas"), available, detail);
    }
}

/// Checks that `status.collisionCount` does not decrease.
pub(crate) fn validate_collisions(status: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
    let (count, was) = (status.integer("collisionCount"), old.integer("collisionCount"));
    let lowered = was.is_some_and(|was| count.is_none_or(|count| count < was));
    if lowered {
        let count = count.unwrap_or(0);
        errors.invalid(status.at("collisionCount"), count, "cannot be decremented");
    }
}

/// Sets missing times of conditions to null, because Go encodes them even if they are unset.
pub(crate) fn default_conditions(status: &mut Map, times: &[&str]) {
    for condition in items_mut(status, "conditions") {
        for time in times {
            default_value(condition, time, Value::Null);
        }
    }
}
