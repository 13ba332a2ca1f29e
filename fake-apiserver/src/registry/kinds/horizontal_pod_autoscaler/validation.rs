//! Validation of HorizontalPodAutoscalers (`pkg/apis/autoscaling/validation`).

use crate::api::field::FieldErrors;
use crate::api::json::Value;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::kinds::pod::resources::validate_container_resource_name;
use crate::registry::types::check::NOT_POSITIVE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names;
use crate::registry::types::quantity::Quantity;

const METRIC_TYPES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];
/// Metric sources in the order of validation. Only the first source that is set is checked.
const SOURCES: [&str; 5] = ["object", "external", "pods", "resource", "containerResource"];
const WINDOW_MAX: i64 = 3_600;
const PERIOD_MAX: i64 = 1_800;

/// Accepted versions of a reference (`CrossVersionObjectReferenceValidationOptions`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    /// Any string; used before 1.34, and for references that the stored object already has.
    Any,
    /// Versions of any group, including the core group.
    MayBeCore,
    /// Versions of any group except the core group.
    Named,
}

/// Checks a HorizontalPodAutoscaler (`validateHorizontalPodAutoscalerSpec`). Invalid versions and a `minReplicas` of
/// zero are tolerated if the stored object already has them.
pub(super) fn validate(version: KubernetesVersion, object: &Object, old: Option<&Object>, errors: &mut FieldErrors) {
    let scaler = Cursor::root(object);
    let old = old.map(|it| Cursor::root(it));
    let spec = scaler.at("spec");
    let (min, max) = (spec.integer("minReplicas"), spec.integer("maxReplicas").unwrap_or(0));
    let had_zero = old.is_some_and(|old| old.integer("spec.minReplicas") == Some(0));
    let lowest = i64::from(!had_zero && version < KubernetesVersion::V1_37);
    if let Some(min) = min.filter(|&min| min < lowest) {
        let text = format!("must be greater than or equal to {lowest}");
        errors.invalid(spec.at("minReplicas"), min, text);
    }
    if max == 0 {
        errors.required(spec.at("maxReplicas"), "must be set and greater than 0");
    } else if max < 0 {
        errors.invalid(spec.at("maxReplicas"), max, "must be greater than or equal to 1");
    }
    if min.is_some_and(|min| max < min) {
        let text = "must be greater than or equal to `minReplicas`";
        errors.invalid(spec.at("maxReplicas"), max, text);
    }
    let target = spec.at("scaleTargetRef");
    let is_as_before = |old: &Cursor<'_>| {
        let old = old.at("spec.scaleTargetRef");
        ["apiVersion", "kind"]
            .iter()
            .all(|field| old.text(field) == target.text(field))
    };
    let takes_any_version = version < KubernetesVersion::V1_34;
    let group = match target.text("kind") {
        _ if takes_any_version || old.as_ref().is_some_and(is_as_before) => Group::Any,
        "ReplicationController" => Group::MayBeCore,
        _ => Group::Named,
    };
    validate_reference(&target, group, errors);
    let described = if takes_any_version || old.is_some_and(|old| has_wrong_metric(&old)) {
        Group::Any
    } else {
        Group::MayBeCore
    };
    for metric in spec.items("metrics") {
        validate_metric(&metric, described, errors);
    }
    let is_outside = |metric: Cursor<'_>| matches!(metric.text("type"), "Object" | "External");
    if min == Some(0) && !spec.items("metrics").any(is_outside) {
        let text = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(spec.at("metrics"), text);
    }
    for rules in ["behavior.scaleUp", "behavior.scaleDown"] {
        if spec.is_set(rules) {
            validate_rules(&spec.at(rules), errors);
        }
    }
}

/// Checks an updated status (`ValidateHorizontalPodAutoscalerStatusUpdate`).
pub(super) fn validate_status(object: &Object, errors: &mut FieldErrors) {
    let scaler = Cursor::root(object);
    for field in ["status.currentReplicas", "status.desiredReplicas"] {
        scaler.at(field).check_not_negative(errors);
    }
}

/// Returns `true` if an Object metric refers to a version that is refused in new objects.
fn has_wrong_metric(old: &Cursor<'_>) -> bool {
    let is_wrong = |metric: Cursor<'_>| {
        metric.text("type") == "Object"
            && version_problem(metric.text("object.describedObject.apiVersion"), Group::MayBeCore).is_some()
    };
    old.items("spec.metrics").any(is_wrong)
}

/// Returns the error for an invalid `apiVersion` of a reference (`ValidateAPIVersion`).
fn version_problem(api_version: &str, group: Group) -> Option<String> {
    let slashes = api_version.matches('/').count();
    match group {
        Group::Any => None,
        _ if slashes > 1 => Some(format!("unexpected GroupVersion string: {api_version}")),
        Group::Named if slashes == 0 || api_version.starts_with('/') => {
            Some("apiVersion must specify API group".to_owned())
        }
        Group::MayBeCore | Group::Named => None,
    }
}

/// Checks a reference to an object (`ValidateCrossVersionObjectReference`).
fn validate_reference(reference: &Cursor<'_>, group: Group, errors: &mut FieldErrors) {
    for field in ["kind", "name"] {
        let value = reference.at(field);
        if value.check_required(errors) {
            value.check_texts(names::path_segment(value.as_text(), false), errors);
        }
    }
    let api_version = reference.text("apiVersion");
    if let Some(problem) = version_problem(api_version, group) {
        errors.invalid(reference.at("apiVersion"), api_version, problem);
    }
}

/// Checks a metric (`validateMetricSpec`).
fn validate_metric(metric: &Cursor<'_>, described: Group, errors: &mut FieldErrors) {
    let metric_type = metric.text("type");
    let supported = METRIC_TYPES.map(|(name, _)| name);
    if metric_type.is_empty() {
        errors.required(metric.at("type"), "must specify a metric source type");
    }
    if !supported.contains(&metric_type) {
        errors.not_supported(metric.at("type"), metric_type, &supported);
    }
    let present: Vec<&str> = SOURCES.into_iter().filter(|field| metric.is_set(field)).collect();
    if let Some(field) = present.first() {
        validate_source(field, &metric.at(field), described, errors);
    }
    let expected = METRIC_TYPES.iter().find(|(name, _)| *name == metric_type);
    match expected {
        Some((_, field)) => {
            if !present.contains(field) {
                let text = "must populate information for the given metric source";
                errors.required(metric.at(field), text);
            }
        }
        // As in kube-apiserver, this error is reported twice.
        None => errors.not_supported(metric.at("type"), metric_type, &supported),
    }
    if present.len() != 1 {
        let others = present
            .iter()
            .filter(|it| expected.is_none_or(|(_, field)| field != *it));
        for field in others {
            errors.forbidden(metric.at(field), "must populate the given metric source only");
        }
    }
}

fn validate_source(field: &str, source: &Cursor<'_>, described: Group, errors: &mut FieldErrors) {
    match field {
        "resource" | "containerResource" => validate_resource(source, field == "containerResource", errors),
        _ => {
            if field == "object" {
                validate_reference(&source.at("describedObject"), described, errors);
            }
            let name = source.at("metric.name");
            if name.as_text().is_empty() {
                errors.required(name, "must specify a metric name");
            }
            name.check_texts(names::path_segment(name.as_text(), false), errors);
        }
    }
    let target = source.at("target");
    validate_target(&target, errors);
    let has = |field: &str| target.is_set(field);
    match field {
        "resource" | "containerResource" => match (has("averageUtilization"), has("averageValue")) {
            (false, false) => {
                let text = "must set either a target raw value or a target utilization";
                errors.required(target.at("averageUtilization"), text);
            }
            (true, true) => {
                let text = "may not set both a target raw value and a target utilization";
                errors.forbidden(target.at("averageValue"), text);
            }
            _ => {}
        },
        "pods" => {
            if !has("averageValue") {
                let text = "must specify a positive target averageValue";
                errors.required(target.at("averageValue"), text);
            }
        }
        "object" => {
            if !has("value") && !has("averageValue") {
                let text = "must set either a target value or averageValue";
                errors.required(target.at("averageValue"), text);
            }
        }
        _ => match (has("value"), has("averageValue")) {
            (false, false) => {
                let text = "must set either a target value for metric or a per-pod target";
                errors.required(target.at("averageValue"), text);
            }
            (true, true) => {
                let text = "may not set both a target value for metric and a per-pod target";
                errors.forbidden(target.at("value"), text);
            }
            _ => {}
        },
    }
}

fn validate_resource(source: &Cursor<'_>, of_container: bool, errors: &mut FieldErrors) {
    let name = source.at("name");
    if name.as_text().is_empty() {
        errors.required(name, "must specify a resource name");
    } else if of_container {
        validate_container_resource_name(name.as_text(), &name, errors);
    }
    if of_container {
        let container = source.at("container");
        if container.as_text().is_empty() {
            errors.required(container, "must specify a container");
        }
        container.check_label(errors);
    }
}

/// Checks the target of a metric (`validateMetricTarget`).
fn validate_target(target: &Cursor<'_>, errors: &mut FieldErrors) {
    let kind = target.text("type");
    if kind.is_empty() {
        errors.required(target.at("type"), "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let text = "must be either Utilization, Value, or AverageValue";
        errors.invalid(target.at("type"), kind, text);
    }
    for field in ["value", "averageValue"] {
        let quantity = target.text(field);
        if Quantity::parse(quantity).is_ok_and(|it| it.signum() <= 0) {
            errors.invalid(target.at(field), quantity, "must be positive");
        }
    }
    if let Some(percentage) = target.integer("averageUtilization").filter(|&it| it < 1) {
        errors.invalid(target.at("averageUtilization"), percentage, "must be greater than 0");
    }
}

/// Checks the rules for scaling up or down (`validateScalingRules`).
fn validate_rules(rules: &Cursor<'_>, errors: &mut FieldErrors) {
    if let Some(window) = rules.integer("stabilizationWindowSeconds") {
        let path = rules.at("stabilizationWindowSeconds");
        if window < 0 {
            errors.invalid(path, window, "must be greater than or equal to zero");
        } else if window > WINDOW_MAX {
            errors.invalid(path, window, format!("must be less than or equal to {WINDOW_MAX}"));
        }
    }
    rules
        .at("selectPolicy")
        .check_one_of(&["Disabled", "Max", "Min"], errors);
    if rules.is_empty("policies") {
        errors.required(rules.at("policies"), "must specify at least one Policy");
    }
    for policy in rules.items("policies") {
        validate_policy(&policy, errors);
    }
    let tolerance = rules.text("tolerance");
    if Quantity::parse(tolerance).is_ok_and(|it| it.signum() < 0) {
        let text = "must be greater than or equal to 0";
        errors.invalid(rules.at("tolerance"), tolerance, text);
    }
}

/// Checks a scaling policy (`validateScalingPolicy`).
fn validate_policy(policy: &Cursor<'_>, errors: &mut FieldErrors) {
    let kind = policy.text("type");
    if !matches!(kind, "Percent" | "Pods") {
        errors.not_supported(policy.at("type"), kind, &["Percent", "Pods"]);
    }
    for field in ["value", "periodSeconds"] {
        let number = policy.integer(field).unwrap_or(0);
        if number <= 0 {
            errors.invalid(policy.at(field), number, NOT_POSITIVE);
        }
    }
    let period = policy.get("periodSeconds").and_then(Value::as_i64);
    if let Some(period) = period.filter(|it| *it > PERIOD_MAX) {
        let text = format!("must be less than or equal to {PERIOD_MAX}");
        errors.invalid(policy.at("periodSeconds"), period, text);
    }
}
