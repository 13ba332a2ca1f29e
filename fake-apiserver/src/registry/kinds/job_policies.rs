//! Validation of `podFailurePolicy` and `successPolicy` of a Job.

use std::collections::BTreeSet;

use super::job_indexes::count_indexes;
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors};
use crate::api::json::Value;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];

/// Maximum number of rules in either policy, and of patterns in a rule.
const RULES_MAX: usize = 20;

/// Maximum number of exit codes in a rule.
const CODES_MAX: usize = 255;

/// Maximum length of a list of indexes, in bytes.
const INDEXES_MAX: usize = 64 * 1024;

/// Checks `podFailurePolicy`.
pub(super) fn validate_failure_policy(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let rules = spec.at("podFailurePolicy.rules");
    validate_count(&rules, errors);
    for rule in rules.items("") {
        validate_action(&rule.at("action"), spec, errors);
        let (codes, conditions) = (rule.at("onExitCodes"), rule.at("onPodConditions"));
        if codes.is_set("") {
            validate_codes(&codes, spec, errors);
        }
        validate_count(&conditions, errors);
        for pattern in conditions.items("") {
            pattern.at("type").check_name(names::qualified_name, errors);
            validate_word(&pattern.at("status"), &STATUSES, errors);
        }
        let detail = match (codes.is_set(""), !conditions.is_empty("")) {
            (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        without_value(&rule, detail, errors);
    }
}

/// Adds an error of the form `path: Invalid value: detail`, which does not show the value.
pub(super) fn without_value(at: &Cursor<'_>, detail: &str, errors: &mut FieldErrors) {
    errors.push(FieldError {
        path: at.path(),
        kind: FieldErrorKind::Invalid,
        value: None,
        detail: detail.to_owned(),
    });
}

/// Checks the number of rules or patterns.
fn validate_count(list: &Cursor<'_>, errors: &mut FieldErrors) {
    let count = list.list("").len();
    if count > RULES_MAX {
        errors.too_many(list, count, RULES_MAX);
    }
}

/// Checks that a field is set to a supported value.
fn validate_word(word: &Cursor<'_>, supported: &[&str], errors: &mut FieldErrors) {
    match word.is_empty("") {
        true => errors.required(word, quoted(supported)),
        false => word.check_supported(supported, errors),
    }
}

/// Formats the detail of an error: `valid values: […]`, with the list in the form of Go's `%q`.
fn quoted(values: &[&str]) -> String {
    let values: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
    format!("valid values: [{}]", values.join(" "))
}

fn validate_action(action: &Cursor<'_>, spec: &Cursor<'_>, errors: &mut FieldErrors) {
    if action.as_text() == "FailIndex" && !spec.is_set("backoffLimitPerIndex") {
        errors.invalid(action, "FailIndex", "requires the backoffLimitPerIndex to be set");
    } else {
        validate_word(action, &ACTIONS, errors);
    }
}

fn validate_codes(codes: &Cursor<'_>, spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let operator = codes.at("operator");
    validate_word(&operator, &OPERATORS, errors);
    if let Some(container) = codes.present("containerName") {
        let mut containers = ["template.spec.containers", "template.spec.initContainers"]
            .iter()
            .flat_map(|list| spec.items(list));
        if !containers.any(|it| it.text("name") == container.as_text()) {
            let detail = "must be one of the container or initContainer names in the pod template";
            errors.invalid(container, container.as_text(), detail);
        }
    }
    let at = codes.at("values");
    let values: Vec<i64> = at.list("").iter().map(|it| it.as_i64().unwrap_or(0)).collect();
    if values.is_empty() {
        errors.invalid(at, at.to_value(), "at least one value is required");
    } else if values.len() > CODES_MAX {
        errors.too_many(at, values.len(), CODES_MAX);
    }
    let mut seen = BTreeSet::new();
    for (item, code) in at.items("").zip(&values) {
        if operator.as_text() == "In" && *code == 0 {
            errors.invalid(item, 0, "must not be 0 for the In operator");
        }
        if !seen.insert(code) {
            errors.duplicate(item, *code);
        }
    }
    if !values.is_sorted() {
        errors.invalid(at, Value::from(values), "must be ordered");
    }
}

/// Checks `successPolicy` of an indexed Job.
pub(super) fn validate_success_policy(policy: &Cursor<'_>, spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let rules = policy.at("rules");
    if rules.is_empty("") {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.required(rules, detail);
    }
    validate_count(&rules, errors);
    let completions = spec.integer("completions").unwrap_or(0);
    for rule in rules.items("") {
        validate_success_rule(&rule, completions, errors);
    }
}

fn validate_success_rule(rule: &Cursor<'_>, completions: i64, errors: &mut FieldErrors) {
    let (at, listed) = (rule.at("succeededCount"), rule.at("succeededIndexes"));
    if !at.is_set("") && !listed.is_set("") {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.required(rule, detail);
    }
    let mut total = 0;
    if listed.is_set("") {
        let indexes = listed.as_text();
        if indexes.len() > INDEXES_MAX {
            errors.too_long(listed, INDEXES_MAX);
        }
        match count_indexes(indexes, completions) {
            Ok(count) => total = count,
            Err(trouble) => errors.invalid(listed, indexes, format!("error parsing succeededIndexes: {trouble}")),
        }
    }
    let Some(count) = at.integer("") else {
        return;
    };
    at.check_not_negative(errors);
    if count > completions {
        let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
        errors.invalid(at, count, detail);
    }
    if listed.is_set("") && count > total {
        let detail = format!(
            "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        );
        errors.invalid(at, count, detail);
    }
}
