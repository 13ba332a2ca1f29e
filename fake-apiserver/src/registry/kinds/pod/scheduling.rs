//! Validation of a pod's affinity, tolerations and topology spread constraints.

use std::collections::BTreeSet;

use crate::api::field::FieldErrors;
use crate::api::json::{Map, SmolStr, Value};
use crate::registry::types::check::NOT_POSITIVE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::{labels, names};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Checks `affinity` of a pod.
pub(super) fn validate_affinity(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    if let Some(nodes) = spec.present("affinity.nodeAffinity") {
        validate_node_affinity(&nodes, errors);
    }
    for kind in ["affinity.podAffinity", "affinity.podAntiAffinity"] {
        let Some(pods) = spec.present(kind) else {
            continue;
        };
        for term in pods.items(REQUIRED) {
            validate_pod_term(&term, errors);
        }
        for weighted in pods.items(PREFERRED) {
            validate_weight(&weighted, errors);
            validate_pod_term(&weighted.at("podAffinityTerm"), errors);
        }
    }
}

fn validate_weight(term: &Cursor<'_>, errors: &mut FieldErrors) {
    let weight = term.integer("weight").unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.invalid(term.at("weight"), weight, "must be in the range 1-100");
    }
}

fn validate_node_affinity(affinity: &Cursor<'_>, errors: &mut FieldErrors) {
    if let Some(required) = affinity.present(REQUIRED) {
        validate_node_selector(&required, errors);
    }
    for weighted in affinity.items(PREFERRED) {
        validate_weight(&weighted, errors);
        validate_node_term(&weighted.at("preference"), false, errors);
    }
}

/// Checks a NodeSelector (`ValidateNodeSelector`).
pub(crate) fn validate_node_selector(selector: &Cursor<'_>, errors: &mut FieldErrors) {
    let terms = selector.at("nodeSelectorTerms");
    if terms.is_empty("") {
        errors.required(terms, "must have at least one node selector term");
    }
    for term in terms.items("") {
        validate_node_term(&term, true, errors);
    }
}

fn validate_node_term(term: &Cursor<'_>, check_values: bool, errors: &mut FieldErrors) {
    for requirement in term.items("matchExpressions") {
        validate_node_requirement(&requirement, check_values, errors);
    }
    for requirement in term.items("matchFields") {
        validate_node_field(&requirement, errors);
    }
}

fn validate_node_requirement(requirement: &Cursor<'_>, check_values: bool, errors: &mut FieldErrors) {
    let values = requirement.at("values");
    let count = values.list("").len();
    match requirement.text("operator") {
        "In" | "NotIn" => {
            if count == 0 {
                errors.required(values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
        }
        "Exists" | "DoesNotExist" => {
            if count > 0 {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(values, detail);
            }
        }
        "Gt" | "Lt" => {
            if count != 1 {
                let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.required(values, detail);
            }
        }
        other => errors.invalid(requirement.at("operator"), other, "not a valid selector operator"),
    }
    labels::validate_key(&requirement.at("key"), errors);
    for value in values.items("").filter(|_| check_values) {
        value.check_name(names::label_value, errors);
    }
}

fn validate_node_field(requirement: &Cursor<'_>, errors: &mut FieldErrors) {
    let (key, values) = (requirement.at("key"), requirement.at("values"));
    match requirement.text("operator") {
        "In" | "NotIn" => {
            if values.list("").len() != 1 {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.required(values, detail);
            }
        }
        other => errors.invalid(requirement.at("operator"), other, "not a valid selector operator"),
    }
    if key.as_text() != "metadata.name" {
        errors.invalid(key, key.as_text(), "not a valid field selector key");
        return;
    }
    for value in values.items("") {
        value.check_name(|it| names::dns1123_subdomain(it, false), errors);
    }
}

fn validate_pod_term(term: &Cursor<'_>, errors: &mut FieldErrors) {
    for selector in ["labelSelector", "namespaceSelector"] {
        labels::validate_selector(&term.at(selector), errors);
    }
    for namespace in term.texts("namespaces") {
        // As in kube-apiserver, the error path has a field that does not exist.
        term.at("namespace")
            .refuse(namespace, names::dns1123_label(namespace, false), errors);
    }
    validate_label_keys(term, errors);
    validate_topology_key(&term.at("topologyKey"), errors);
    labels::validate_key(&term.at("topologyKey"), errors);
}

fn validate_topology_key(key: &Cursor<'_>, errors: &mut FieldErrors) {
    if key.is_empty("") {
        errors.required(key, "can not be empty");
    }
}

/// Checks `matchLabelKeys` and `mismatchLabelKeys` of a term with a label selector.
fn validate_label_keys(term: &Cursor<'_>, errors: &mut FieldErrors) {
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = term.at(field);
        if !keys.is_empty("") && !term.is_set("labelSelector") {
            errors.forbidden(keys, "must not be specified when labelSelector is not set");
            continue;
        }
        for key in keys.items("") {
            labels::validate_key(&key, errors);
        }
    }
    let matched = || term.texts("matchLabelKeys");
    if matched().next().is_none() {
        return;
    }
    let known = term.map("labelSelector.matchLabels");
    let mut known: BTreeSet<&str> = known.into_iter().flat_map(Map::keys).map(SmolStr::as_str).collect();
    for expression in term.list("labelSelector.matchExpressions") {
        let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
        let place = matched().enumerate().filter(|(_, it)| *it == key).last();
        if let Some((index, _)) = place.filter(|_| known.contains(key)) {
            // As in kube-apiserver, the error path lacks the field.
            let detail = "exists in both matchLabelKeys and labelSelector";
            errors.invalid(term.path().index(index), key, detail);
        }
        known.insert(key);
    }
    for key in term.items("matchLabelKeys") {
        if term.texts("mismatchLabelKeys").any(|other| other == key.as_text()) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.invalid(key, key.as_text(), detail);
        }
    }
}

/// Checks the tolerations in a pod spec.
pub(crate) fn validate_tolerations(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    validate_toleration_list(&spec.at("tolerations"), errors);
}

/// Checks a list of tolerations.
pub(super) fn validate_toleration_list(tolerations: &Cursor<'_>, errors: &mut FieldErrors) {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    for toleration in tolerations.items("") {
        let (key, operator) = (toleration.at("key"), toleration.at("operator"));
        let (value, effect) = (toleration.text("value"), toleration.at("effect"));
        if !key.is_empty("") && !names::is_qualified_name(key.as_text()) {
            labels::validate_key(&key, errors);
        }
        if key.is_empty("") && operator.as_text() != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(operator, operator.as_text(), detail);
        }
        if toleration.is_set("tolerationSeconds") && effect.as_text() != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(effect, effect.as_text(), detail);
        }
        match operator.as_text() {
            "" | "Equal" => {
                let texts = names::label_value(value);
                if !texts.is_empty() {
                    errors.invalid(operator, value, texts.join(";"));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.invalid(operator, value, detail);
                }
            }
            "Lt" | "Gt" => {
                let supported = ["Equal", "Exists", "Lt", "Gt"];
                errors.not_supported(operator, operator.as_text(), &supported);
            }
            other => errors.not_supported(operator, other, &["Equal", "Exists"]),
        }
        if !effect.is_empty("") {
            effect.check_supported(&EFFECTS, errors);
        }
    }
}

/// Checks `topologySpreadConstraints`.
pub(super) fn validate_spread(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let constraints = || spec.items("topologySpreadConstraints");
    for (index, constraint) in constraints().enumerate() {
        let skew = constraint.integer("maxSkew").unwrap_or(0);
        if skew <= 0 {
            errors.invalid(constraint.at("maxSkew"), skew, NOT_POSITIVE);
        }
        validate_topology_key(&constraint.at("topologyKey"), errors);
        let action = constraint.at("whenUnsatisfiable");
        action.check_supported(&["DoNotSchedule", "ScheduleAnyway"], errors);
        let [key, action] = ["topologyKey", "whenUnsatisfiable"].map(|field| constraint.text(field));
        let is_same = |other: Cursor<'_>| other.text("topologyKey") == key && other.text("whenUnsatisfiable") == action;
        if constraints().skip(index + 1).any(is_same) {
            let shown = format!("{{{key}, {action}}}");
            errors.duplicate(constraint.at("{topologyKey, whenUnsatisfiable}"), shown);
        }
        validate_min_domains(&constraint.at("minDomains"), action, errors);
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            constraint.at(policy).check_one_of(&["Honor", "Ignore"], errors);
        }
        validate_label_keys(&constraint, errors);
        labels::validate_selector(&constraint.at("labelSelector"), errors);
    }
}

fn validate_min_domains(at: &Cursor<'_>, action: &str, errors: &mut FieldErrors) {
    let Some(domains) = at.integer("") else {
        return;
    };
    if domains <= 0 {
        errors.invalid(at, domains, NOT_POSITIVE);
    }
    if action != "DoNotSchedule" {
        let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        errors.invalid(at, domains, detail);
    }
}
