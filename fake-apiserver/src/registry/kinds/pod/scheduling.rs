//! Scheduling of a pod: affinity, tolerations, spread over topologies.

use std::collections::BTreeSet;

use crate::api::field::{FieldErrors, FieldPath};
use crate::registry::types::check::{NOT_POSITIVE, optional_one_of, wrong};
use crate::registry::types::view::{JsonMap, integer, is_set, items, list, object, object_or_empty, text, texts};
use crate::registry::types::{labels, names};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Checks `affinity` of a pod.
pub(super) fn validate_affinity(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(affinity) = object(spec, "affinity") else {
        return;
    };
    let path = path.child("affinity");
    if let Some(nodes) = object(affinity, "nodeAffinity") {
        validate_node_affinity(nodes, &path.child("nodeAffinity"), errors);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = object_or_empty(affinity, kind);
        let path = path.child(kind);
        for (index, term) in items(pods, REQUIRED) {
            validate_pod_term(term, &path.child(REQUIRED).index(index), errors);
        }
        for (index, weighted) in items(pods, PREFERRED) {
            let path = path.child(PREFERRED).index(index);
            validate_weight(weighted, &path, errors);
            let term = object_or_empty(weighted, "podAffinityTerm");
            validate_pod_term(term, &path.child("podAffinityTerm"), errors);
        }
    }
}

fn validate_weight(term: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let weight = integer(term, "weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.invalid(path.child("weight"), weight, "must be in the range 1-100");
    }
}

fn validate_node_affinity(affinity: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(required) = object(affinity, REQUIRED) {
        validate_node_selector(required, &path.child(REQUIRED), errors);
    }
    for (index, weighted) in items(affinity, PREFERRED) {
        let path = path.child(PREFERRED).index(index);
        validate_weight(weighted, &path, errors);
        let term = object_or_empty(weighted, "preference");
        validate_node_term(term, false, &path.child("preference"), errors);
    }
}

/// Validates a NodeSelector of another kind (Go's `ValidateNodeSelector`).
pub(crate) fn validate_node_selector(selector: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let path = path.child("nodeSelectorTerms");
    if list(selector, "nodeSelectorTerms").is_empty() {
        errors.required(path, "must have at least one node selector term");
        return;
    }
    for (index, term) in items(selector, "nodeSelectorTerms") {
        validate_node_term(term, true, &path.index(index), errors);
    }
}

fn validate_node_term(term: &JsonMap, check_values: bool, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, requirement) in items(term, "matchExpressions") {
        let path = path.child("matchExpressions").index(index);
        validate_node_requirement(requirement, check_values, &path, errors);
    }
    for (index, requirement) in items(term, "matchFields") {
        validate_node_field(requirement, &path.child("matchFields").index(index), errors);
    }
}

fn validate_node_requirement(requirement: &JsonMap, check_values: bool, path: &FieldPath, errors: &mut FieldErrors) {
    let values = list(requirement, "values").len();
    match text(requirement, "operator") {
        "In" | "NotIn" => {
            if values == 0 {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.required(path.child("values"), detail);
            }
        }
        "Exists" | "DoesNotExist" => {
            if values > 0 {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(path.child("values"), detail);
            }
        }
        "Gt" | "Lt" => {
            if values != 1 {
                let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.required(path.child("values"), detail);
            }
        }
        other => errors.invalid(path.child("operator"), other, "not a valid selector operator"),
    }
    labels::validate_key(text(requirement, "key"), &path.child("key"), errors);
    if check_values {
        for (index, value) in texts(requirement, "values") {
            wrong(
                names::label_value(value),
                value,
                || path.child("values").index(index),
                errors,
            );
        }
    }
}

fn validate_node_field(requirement: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    match text(requirement, "operator") {
        "In" | "NotIn" => {
            if list(requirement, "values").len() != 1 {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.required(path.child("values"), detail);
            }
        }
        other => errors.invalid(path.child("operator"), other, "not a valid selector operator"),
    }
    let key = text(requirement, "key");
    if key != "metadata.name" {
        errors.invalid(path.child("key"), key, "not a valid field selector key");
        return;
    }
    for (index, value) in texts(requirement, "values") {
        let at = || path.child("values").index(index);
        wrong(names::dns1123_subdomain(value, false), value, at, errors);
    }
}

fn validate_pod_term(term: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    for selector in ["labelSelector", "namespaceSelector"] {
        labels::validate_selector(term.get(selector), &path.child(selector), errors);
    }
    for (_, namespace) in texts(term, "namespaces") {
        let at = || path.child("namespace");
        wrong(names::dns1123_label(namespace, false), namespace, at, errors);
    }
    validate_label_keys(term, path, errors);
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.required(path.child("topologyKey"), "can not be empty");
    }
    labels::validate_key(key, &path.child("topologyKey"), errors);
}

/// Checks `matchLabelKeys` and `mismatchLabelKeys` beside a label selector.
fn validate_label_keys(term: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let selector = object(term, "labelSelector");
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        if list(term, field).is_empty() {
            continue;
        }
        if selector.is_none() {
            errors.forbidden(path.child(field), "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in texts(term, field) {
            labels::validate_key(key, &path.child(field).index(index), errors);
        }
    }
    if let Some(selector) = selector {
        let mut known: BTreeSet<&str> = object_or_empty(selector, "matchLabels")
            .keys()
            .map(String::as_str)
            .collect();
        for (_, expression) in items(selector, "matchExpressions") {
            let key = text(expression, "key");
            let place = texts(term, "matchLabelKeys").filter(|(_, it)| *it == key).last();
            if let Some((index, _)) = place.filter(|_| known.contains(key)) {
                // the path lacks the field, as the server's does
                errors.invalid(
                    path.index(index),
                    key,
                    "exists in both matchLabelKeys and labelSelector",
                );
            }
            known.insert(key);
        }
    }
    for (index, key) in texts(term, "matchLabelKeys") {
        if texts(term, "mismatchLabelKeys").any(|(_, other)| other == key) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.invalid(path.child("matchLabelKeys").index(index), key, detail);
        }
    }
}

/// Checks tolerations.
pub(crate) fn validate_tolerations(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    for (index, toleration) in items(spec, "tolerations") {
        let path = || path.child("tolerations").index(index);
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
        if !key.is_empty() && !names::is_qualified_name(key) {
            labels::validate_key(key, &path().child("key"), errors);
        }
        if key.is_empty() && operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(path().child("operator"), operator, detail);
        }
        if is_set(toleration, "tolerationSeconds") && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(path().child("effect"), effect, detail);
        }
        match operator {
            "" | "Equal" => {
                let texts = names::label_value(value);
                if !texts.is_empty() {
                    errors.invalid(path().child("operator"), value, texts.join(";"));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.invalid(path().child("operator"), value, detail);
                }
            }
            "Lt" | "Gt" => {
                let supported = ["Equal", "Exists", "Lt", "Gt"];
                errors.not_supported(path().child("operator"), operator, &supported);
            }
            other => errors.not_supported(path().child("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.not_supported(path().child("effect"), effect, &EFFECTS);
        }
    }
}

/// Checks `topologySpreadConstraints`.
pub(super) fn validate_spread(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
    let constraints: Vec<(usize, &JsonMap)> = items(spec, "topologySpreadConstraints").collect();
    for (index, constraint) in &constraints {
        let path = path.child("topologySpreadConstraints").index(*index);
        let skew = integer(constraint, "maxSkew").unwrap_or(0);
        if skew <= 0 {
            errors.invalid(path.child("maxSkew"), skew, NOT_POSITIVE);
        }
        let (key, action) = (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
        if key.is_empty() {
            errors.required(path.child("topologyKey"), "can not be empty");
        }
        if !ACTIONS.contains(&action) {
            errors.not_supported(path.child("whenUnsatisfiable"), action, &ACTIONS);
        }
        let repeated = constraints
            .iter()
            .skip(index + 1)
            .any(|(_, other)| text(other, "topologyKey") == key && text(other, "whenUnsatisfiable") == action);
        if repeated {
            let shown = format!("{{{key}, {action}}}");
            errors.duplicate(path.child("{topologyKey, whenUnsatisfiable}"), shown);
        }
        validate_min_domains(constraint, action, &path, errors);
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            optional_one_of(constraint, policy, &["Honor", "Ignore"], &path, errors);
        }
        validate_label_keys(constraint, &path, errors);
        labels::validate_selector(constraint.get("labelSelector"), &path.child("labelSelector"), errors);
    }
}

fn validate_min_domains(constraint: &JsonMap, action: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(domains) = integer(constraint, "minDomains") else {
        return;
    };
    if domains <= 0 {
        errors.invalid(path.child("minDomains"), domains, NOT_POSITIVE);
    }
    if action != "DoNotSchedule" {
        let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        errors.invalid(path.child("minDomains"), domains, detail);
    }
}
