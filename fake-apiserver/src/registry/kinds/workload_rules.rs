//! Rules shared by workloads: selectors and the labels they must match, replicas, numbers or percentages.

use serde_json::Value;

use super::metadata::invalid_printed;
use super::pod::validation::Template;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::check::{NEGATIVE, not_negative};
use crate::registry::types::labels;
use crate::registry::types::names;
use crate::registry::types::view::{
    JsonMap, default_value, integer, is_set, items, items_mut, list, object, object_or_empty, same, text, texts,
    value_of,
};

/// Error for a template that its selector does not select.
const MISMATCH: &str = "`selector` does not match template `labels`";

/// Requirement of a selector on labels.
pub(crate) enum Selection<'a> {
    /// No selector: nothing is selected.
    Nothing,
    /// A selector that says nothing selects everything.
    Everything,
    /// A right selector.
    Matching(&'a JsonMap),
    /// A wrong one.
    Wrong,
}

impl<'a> Selection<'a> {
    /// Reads a `LabelSelector`.
    pub(crate) fn of(selector: Option<&'a JsonMap>) -> Self {
        let Some(selector) = selector else {
            return Selection::Nothing;
        };
        let labels = object_or_empty(selector, "matchLabels");
        if labels.is_empty() && list(selector, "matchExpressions").is_empty() {
            return Selection::Everything;
        }
        let mut wrong = labels.iter().any(|(key, value)| {
            !names::is_qualified_name(key) || !names::is_label_value(value.as_str().unwrap_or_default())
        });
        for (_, expression) in items(selector, "matchExpressions") {
            let values = list(expression, "values").len();
            wrong |= !names::is_qualified_name(text(expression, "key"));
            wrong |= texts(expression, "values").any(|(_, value)| !names::is_label_value(value));
            wrong |= match text(expression, "operator") {
                "In" | "NotIn" => values == 0,
                "Exists" | "DoesNotExist" => values > 0,
                _ => true,
            };
        }
        if wrong {
            Selection::Wrong
        } else {
            Selection::Matching(selector)
        }
    }

    /// Returns `true` if these labels are selected.
    pub(crate) fn matches(&self, labels: &JsonMap) -> bool {
        let selector = match self {
            Selection::Nothing | Selection::Wrong => return false,
            Selection::Everything => return true,
            Selection::Matching(selector) => selector,
        };
        let wanted = object_or_empty(selector, "matchLabels");
        wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
            && items(selector, "matchExpressions").all(|(_, expression)| {
                let value = labels.get(text(expression, "key")).and_then(Value::as_str);
                let listed = |value| texts(expression, "values").any(|(_, it)| it == value);
                match text(expression, "operator") {
                    "In" => value.is_some_and(listed),
                    "NotIn" => !value.is_some_and(listed),
                    "Exists" => value.is_some(),
                    _ => value.is_none(),
                }
            })
    }
}

/// A selector as it is printed: its two fields in Go's order.
pub(crate) fn print_selector(selector: Option<&JsonMap>) -> String {
    let Some(selector) = selector else {
        return "null".to_owned();
    };
    let fields: Vec<String> = ["matchLabels", "matchExpressions"]
        .into_iter()
        .filter(|field| is_set(selector, field))
        .map(|field| format!("\"{field}\":{}", value_of(selector, field)))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// `path: Invalid value: <selector>: detail`
pub(crate) fn wrong_selector(spec: &JsonMap, path: &FieldPath, detail: &str, errors: &mut FieldErrors) {
    let printed = print_selector(object(spec, "selector"));
    invalid_printed(path.child("selector"), &printed, detail, errors);
}

/// A selector that may never change.
pub(crate) fn unchanged_selector(spec: &JsonMap, old: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    if !same(spec, old, "selector") {
        wrong_selector(spec, path, crate::registry::types::check::IMMUTABLE, errors);
    }
}

/// Checks the selector itself: required, right, and selecting something in particular.
pub(crate) fn validate_selector(spec: &JsonMap, kind: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(selector) = object(spec, "selector") else {
        errors.required(path.child("selector"), "");
        return;
    };
    labels::validate_selector(spec.get("selector"), &path.child("selector"), errors);
    let labels = object_or_empty(selector, "matchLabels").len();
    if labels + list(selector, "matchExpressions").len() == 0 {
        let detail = format!("empty selector is invalid for {kind}");
        wrong_selector(spec, path, &detail, errors);
    }
}

/// An error where the template's labels are not selected.
pub(crate) fn validate_selected(
    selection: &Selection<'_>,
    template: &Template<'_>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if !selection.matches(template.labels()) {
        mismatch(template, path, errors);
    }
}

fn mismatch(template: &Template<'_>, path: &FieldPath, errors: &mut FieldErrors) {
    let shown = value_of(object_or_empty(template.template, "metadata"), "labels");
    errors.invalid(path.child("template.metadata.labels"), shown, MISMATCH);
}

/// Checks the template of something that keeps its pods running: selected, right, restarted always, without an end.
/// `kind` as the text about deadlines names it.
pub(crate) fn validate_template(spec: &JsonMap, kind: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let template = Template::of(spec);
    match Selection::of(object(spec, "selector")) {
        Selection::Wrong => {
            wrong_selector(spec, path, "invalid label selector", errors);
            return;
        }
        selection => validate_selected(&selection, &template, path, errors),
    }
    template.validate(&path.child("template"), errors);
    validate_always(&template, kind, path, errors);
}

/// Only pods that always restart, and never end by themselves, can be kept running.
pub(crate) fn validate_always(template: &Template<'_>, kind: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let pod_spec = object_or_empty(template.template, "spec");
    let policy = text(pod_spec, "restartPolicy");
    let path = path.child("template.spec");
    if policy != "Always" {
        errors.not_supported(path.child("restartPolicy"), policy, &["Always"]);
    }
    if is_set(pod_spec, "activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(path.child("activeDeadlineSeconds"), detail);
    }
}

/// Checks a number or percentage that may not be negative.
pub(crate) fn validate_number_or_percent(map: &JsonMap, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    match map.get(key) {
        Some(Value::String(written)) => {
            if let Some(detail) = names::percent(written) {
                errors.invalid(path.child(key), written.as_str(), detail);
            }
        }
        other => {
            let number = other.and_then(Value::as_i64).unwrap_or(0);
            if number < 0 {
                errors.invalid(path.child(key), number, NEGATIVE);
            }
        }
    }
}

/// The number, or what stands before the percent sign; 0 for what is neither.
pub(crate) fn number_or_percent(map: &JsonMap, key: &str) -> i64 {
    match map.get(key) {
        Some(Value::String(written)) => written.strip_suffix('%').unwrap_or(written).parse().unwrap_or(0),
        other => other.and_then(Value::as_i64).unwrap_or(0),
    }
}

/// A percentage of more than all is one of nothing.
pub(crate) fn validate_at_most_all(map: &JsonMap, key: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(written @ Value::String(text)) = map.get(key)
        && names::percent(text).is_none()
        && number_or_percent(map, key) > 100
    {
        errors.invalid(path.child(key), written.clone(), "must not be greater than 100%");
    }
}

/// Numbers of a status: none negative.
pub(crate) fn validate_counts(status: &JsonMap, counts: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    for count in counts {
        not_negative(status, count, path, errors);
    }
}

/// Numbers of a status that count some of its replicas.
pub(crate) fn validate_parts(status: &JsonMap, parts: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    let count = |field: &str| integer(status, field).unwrap_or(0);
    for part in parts.iter().filter(|part| count(part) > count("replicas")) {
        errors.invalid(path.child(part), count(part), "cannot be greater than status.replicas");
    }
}

/// Validates that available replicas are ready.
pub(crate) fn validate_available(status: &JsonMap, detail: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let available = integer(status, "availableReplicas").unwrap_or(0);
    if available > integer(status, "readyReplicas").unwrap_or(0) {
        errors.invalid(path.child("availableReplicas"), available, detail);
    }
}

/// The count of collisions only grows.
pub(crate) fn validate_collisions(status: &JsonMap, old: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let count = integer(status, "collisionCount");
    let was = integer(old, "collisionCount");
    let lowered = was.is_some_and(|was| count.is_none_or(|count| count < was));
    if lowered {
        errors.invalid(
            path.child("collisionCount"),
            count.unwrap_or(0),
            "cannot be decremented",
        );
    }
}

/// The spec and the status of an object.
pub(crate) fn parts(object: &Object) -> (&JsonMap, &JsonMap) {
    (object_or_empty(object, "spec"), object_or_empty(object, "status"))
}

/// Conditions show their times even where none is set.
pub(crate) fn default_conditions(status: &mut JsonMap, times: &[&str]) {
    for condition in items_mut(status, "conditions") {
        for time in times {
            default_value(condition, time, || Value::Null);
        }
    }
}
