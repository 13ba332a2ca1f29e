//! Failure and success of a Job: its `podFailurePolicy` and `successPolicy`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::job_status::count_indexes;
use crate::api::field::{FieldErrors, FieldPath};
use crate::registry::types::check::{not_negative, wrong};
use crate::registry::types::names;
use crate::registry::types::view::{JsonMap, integer, is_set, items, list, object, object_or_empty, text, value_of};

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];

/// The most rules of either policy, and patterns of a rule.
const RULES_MAX: usize = 20;

/// The most exit codes of a rule.
const CODES_MAX: usize = 255;

/// The most bytes of a list of indexes.
const INDEXES_MAX: usize = 64 * 1024;

/// Checks `podFailurePolicy`.
pub(super) fn validate_failure_policy(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(policy) = object(spec, "podFailurePolicy") else {
        return;
    };
    let path = path.child("podFailurePolicy.rules");
    let rules = list(policy, "rules").len();
    if rules > RULES_MAX {
        errors.too_many(path.clone(), rules, RULES_MAX);
    }
    let pod_spec = object_or_empty(object_or_empty(spec, "template"), "spec");
    let containers: BTreeSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| items(pod_spec, list))
        .map(|(_, container)| text(container, "name"))
        .collect();
    for (index, rule) in items(policy, "rules") {
        let path = path.index(index);
        validate_action(rule, spec, &path, errors);
        let codes = object(rule, "onExitCodes");
        if let Some(codes) = codes {
            validate_codes(codes, &containers, &path.child("onExitCodes"), errors);
        }
        let conditions = !list(rule, "onPodConditions").is_empty();
        validate_conditions(rule, &path.child("onPodConditions"), errors);
        let detail = match (codes.is_some(), conditions) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        without_value(path, detail, errors);
    }
}

/// `path: Invalid value: detail`, with no value shown.
pub(super) fn without_value(path: FieldPath, detail: &str, errors: &mut FieldErrors) {
    errors.push(crate::api::field::FieldError {
        path,
        kind: crate::api::field::FieldErrorKind::Invalid,
        value: None,
        detail: detail.to_owned(),
    });
}

/// Strings as Go's `%q` prints a list of them.
fn quoted(values: &[&str]) -> String {
    let values: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
    format!("valid values: [{}]", values.join(" "))
}

fn validate_action(rule: &JsonMap, spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let at = || path.child("action");
    match text(rule, "action") {
        "" => errors.required(at(), quoted(&ACTIONS)),
        "FailIndex" if !is_set(spec, "backoffLimitPerIndex") => {
            errors.invalid(at(), "FailIndex", "requires the backoffLimitPerIndex to be set");
        }
        action if !ACTIONS.contains(&action) => errors.not_supported(at(), action, &ACTIONS),
        _ => {}
    }
}

fn validate_conditions(rule: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let patterns = list(rule, "onPodConditions").len();
    if patterns > RULES_MAX {
        errors.too_many(path.clone(), patterns, RULES_MAX);
    }
    for (index, pattern) in items(rule, "onPodConditions") {
        let path = path.index(index);
        let kind = text(pattern, "type");
        wrong(names::qualified_name(kind), kind, || path.child("type"), errors);
        match text(pattern, "status") {
            "" => errors.required(path.child("status"), quoted(&STATUSES)),
            status if !STATUSES.contains(&status) => errors.not_supported(path.child("status"), status, &STATUSES),
            _ => {}
        }
    }
}

fn validate_codes(codes: &JsonMap, containers: &BTreeSet<&str>, path: &FieldPath, errors: &mut FieldErrors) {
    let operator = text(codes, "operator");
    if operator.is_empty() {
        errors.required(path.child("operator"), quoted(&OPERATORS));
    } else if !OPERATORS.contains(&operator) {
        errors.not_supported(path.child("operator"), operator, &OPERATORS);
    }
    let container = text(codes, "containerName");
    if is_set(codes, "containerName") && !containers.contains(container) {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.invalid(path.child("containerName"), container, detail);
    }
    let at = path.child("values");
    let values: Vec<i64> = list(codes, "values")
        .iter()
        .map(|it| it.as_i64().unwrap_or(0))
        .collect();
    if values.is_empty() {
        errors.invalid(at.clone(), value_of(codes, "values"), "at least one value is required");
    } else if values.len() > CODES_MAX {
        errors.too_many(at.clone(), values.len(), CODES_MAX);
    }
    let mut seen = BTreeSet::new();
    for (index, code) in values.iter().enumerate() {
        if operator == "In" && *code == 0 {
            errors.invalid(at.index(index), 0, "must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            errors.duplicate(at.index(index), *code);
        }
    }
    if !values.is_sorted() {
        errors.invalid(at, Value::from(values), "must be ordered");
    }
}

/// Checks `successPolicy` of a Job with indexes.
pub(super) fn validate_success_policy(policy: &JsonMap, spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let rules = list(policy, "rules").len();
    let path = path.child("rules");
    if rules == 0 {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.required(path.clone(), detail);
    }
    if rules > RULES_MAX {
        errors.too_many(path.clone(), rules, RULES_MAX);
    }
    let completions = integer(spec, "completions").unwrap_or(0);
    for (index, rule) in items(policy, "rules") {
        validate_success_rule(rule, completions, &path.index(index), errors);
    }
}

fn validate_success_rule(rule: &JsonMap, completions: i64, path: &FieldPath, errors: &mut FieldErrors) {
    if !is_set(rule, "succeededCount") && !is_set(rule, "succeededIndexes") {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.required(path.clone(), detail);
    }
    let mut total = 0;
    if is_set(rule, "succeededIndexes") {
        let (indexes, at) = (text(rule, "succeededIndexes"), path.child("succeededIndexes"));
        if indexes.len() > INDEXES_MAX {
            errors.too_long(at.clone(), INDEXES_MAX);
        }
        match count_indexes(indexes, completions) {
            Ok(count) => total = count,
            Err(trouble) => errors.invalid(at, indexes, format!("error parsing succeededIndexes: {trouble}")),
        }
    }
    let Some(count) = integer(rule, "succeededCount") else {
        return;
    };
    let at = || path.child("succeededCount");
    not_negative(rule, "succeededCount", path, errors);
    if count > completions {
        let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
        errors.invalid(at(), count, detail);
    }
    if is_set(rule, "succeededIndexes") && count > total {
        let detail = format!(
            "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        );
        errors.invalid(at(), count, detail);
    }
}
