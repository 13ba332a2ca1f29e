//! What is wrong with a HorizontalPodAutoscaler.

use serde_json::{Map, Value};

use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, is_empty, number, objects, text};
use crate::registry::types::names;
use crate::registry::types::quantity::Quantity;

const METRIC_TYPES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];
const WINDOW_MAX: i64 = 3_600;
const PERIOD_MAX: i64 = 1_800;

/// Checks the spec. A reference without a group is let pass where it stands in the old object already.
pub(super) fn validate(object: &Object, old: Option<&Object>, errors: &mut FieldErrors) {
    let path = FieldPath::new("spec");
    let (min, max) = (
        number(object, "spec.minReplicas"),
        number(object, "spec.maxReplicas").unwrap_or(0),
    );
    if let Some(min) = min.filter(|&min| min < 1) {
        errors.invalid(path.child("minReplicas"), min, "must be greater than or equal to 1");
    }
    if max < 1 {
        errors.required(path.child("maxReplicas"), "must be set and greater than 0");
    }
    if min.is_some_and(|min| max < min) {
        let text = "must be greater than or equal to `minReplicas`";
        errors.invalid(path.child("maxReplicas"), max, text);
    }
    let empty = Map::new();
    let target = at(object, "spec.scaleTargetRef");
    let was_there = old.is_some_and(|old| at(old, "spec.scaleTargetRef") == target);
    let reference = target.and_then(Value::as_object).unwrap_or(&empty);
    validate_reference(reference, !was_there, &path.child("scaleTargetRef"), errors);
    let metrics = path.child("metrics");
    for (index, metric) in objects(object, "spec.metrics") {
        validate_metric(metric, &metrics.index(index), errors);
    }
    let is_outside = |(_, metric): (usize, &Map<String, Value>)| matches!(text(metric, "type"), "Object" | "External");
    if min == Some(0) && !objects(object, "spec.metrics").any(is_outside) {
        let text = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(metrics, text);
    }
    for rule in ["scaleUp", "scaleDown"] {
        if let Some(rules) = at(object, &format!("spec.behavior.{rule}")).and_then(Value::as_object) {
            validate_rules(rules, &path.child("behavior").child(rule), errors);
        }
    }
}

pub(super) fn validate_status(object: &Object, errors: &mut FieldErrors) {
    for field in ["currentReplicas", "desiredReplicas"] {
        if let Some(count) = number(object, &format!("status.{field}")).filter(|&it| it < 0) {
            let path = FieldPath::new("status").child(field);
            errors.invalid(path, count, "must be greater than or equal to 0");
        }
    }
}

fn validate_reference(reference: &Map<String, Value>, needs_group: bool, path: &FieldPath, errors: &mut FieldErrors) {
    for field in ["kind", "name"] {
        let value = text(reference, field);
        if value.is_empty() {
            errors.required(path.child(field), "");
        }
        for problem in names::path_segment(value, false) {
            errors.invalid(path.child(field), value, problem);
        }
    }
    let api_version = text(reference, "apiVersion");
    let is_core = api_version == "v1" && text(reference, "kind") == "ReplicationController";
    if needs_group && !is_core && api_version.split_once('/').is_none_or(|(group, _)| group.is_empty()) {
        errors.invalid(
            path.child("apiVersion"),
            api_version,
            "apiVersion must specify API group",
        );
    }
}

fn validate_metric(metric: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let metric_type = text(metric, "type");
    let supported = METRIC_TYPES.map(|(name, _)| name);
    if metric_type.is_empty() {
        errors.required(path.child("type"), "must specify a metric source type");
    }
    if !supported.contains(&metric_type) {
        errors.not_supported(path.child("type"), metric_type, &supported);
    }
    let source = |field| at(metric, field).and_then(Value::as_object);
    let present = ["object", "external", "pods", "resource", "containerResource"]
        .into_iter()
        .filter(|field| source(field).is_some());
    let present: Vec<&str> = present.collect();
    if let Some((field, source)) = present.first().and_then(|field| Some((*field, source(field)?))) {
        validate_source(field, source, &path.child(field), errors);
    }
    let expected = METRIC_TYPES.iter().find(|(name, _)| *name == metric_type);
    match expected {
        Some((_, field)) => {
            if !present.contains(field) {
                let text = "must populate information for the given metric source";
                errors.required(path.child(field), text);
            }
        }
        // The server says it twice.
        None => errors.not_supported(path.child("type"), metric_type, &supported),
    }
    if present.len() != 1 {
        for field in present
            .iter()
            .filter(|it| expected.is_none_or(|(_, field)| field != *it))
        {
            let text = "must populate the given metric source only";
            errors.forbidden(path.child(field), text);
        }
    }
}

fn validate_source(field: &str, source: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    match field {
        "resource" | "containerResource" => {
            if text(source, "name").is_empty() {
                errors.required(path.child("name"), "must specify a resource name");
            }
            if field == "containerResource" && text(source, "container").is_empty() {
                errors.required(path.child("container"), "must specify a container");
            }
        }
        _ => {
            if field == "object" {
                let empty = Map::new();
                let object = at(source, "describedObject").and_then(Value::as_object);
                let path = path.child("describedObject");
                validate_reference(object.unwrap_or(&empty), false, &path, errors);
            }
            if text(source, "metric.name").is_empty() {
                errors.required(path.child("metric.name"), "must specify a metric name");
            }
        }
    }
    let target = path.child("target");
    validate_target(source, &target, errors);
    let has = |field: &str| at(source, &format!("target.{field}")).is_some();
    match field {
        "resource" | "containerResource" => match (has("averageUtilization"), has("averageValue")) {
            (false, false) => {
                let text = "must set either a target raw value or a target utilization";
                errors.required(target.child("averageUtilization"), text);
            }
            (true, true) => {
                let text = "may not set both a target raw value and a target utilization";
                errors.forbidden(target.child("averageValue"), text);
            }
            _ => {}
        },
        "pods" => {
            if !has("averageValue") {
                let text = "must specify a positive target averageValue";
                errors.required(target.child("averageValue"), text);
            }
        }
        "object" => {
            if !has("value") && !has("averageValue") {
                let text = "must set either a target value or averageValue";
                errors.required(target.child("averageValue"), text);
            }
        }
        _ => match (has("value"), has("averageValue")) {
            (false, false) => {
                let text = "must set either a target value for metric or a per-pod target";
                errors.required(target.child("averageValue"), text);
            }
            (true, true) => {
                let text = "may not set both a target value for metric and a per-pod target";
                errors.forbidden(target.child("value"), text);
            }
            _ => {}
        },
    }
}

fn validate_target(source: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    match text(source, "target.type") {
        "Utilization" | "Value" | "AverageValue" => {}
        "" => errors.required(path.child("type"), "must specify a metric target type"),
        other => {
            let text = "must be either Utilization, Value, or AverageValue";
            errors.invalid(path.child("type"), other, text);
        }
    }
    for field in ["value", "averageValue"] {
        let quantity = text(source, &format!("target.{field}"));
        if Quantity::parse(quantity).is_ok_and(|it| it.signum() <= 0) {
            errors.invalid(path.child(field), quantity, "must be positive");
        }
    }
    if let Some(percentage) = number(source, "target.averageUtilization").filter(|&it| it < 1) {
        errors.invalid(path.child("averageUtilization"), percentage, "must be greater than 0");
    }
}

fn validate_rules(rules: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(window) = number(rules, "stabilizationWindowSeconds") {
        let path = path.child("stabilizationWindowSeconds");
        if window < 0 {
            errors.invalid(path, window, "must be greater than or equal to zero");
        } else if window > WINDOW_MAX {
            errors.invalid(path, window, format!("must be less than or equal to {WINDOW_MAX}"));
        }
    }
    let select = text(rules, "selectPolicy");
    if !matches!(select, "" | "Disabled" | "Max" | "Min") {
        errors.not_supported(path.child("selectPolicy"), select, &["Disabled", "Max", "Min"]);
    }
    let path = path.child("policies");
    if is_empty(rules, "policies") {
        errors.required(path.clone(), "must specify at least one Policy");
    }
    for (index, policy) in objects(rules, "policies") {
        let path = path.index(index);
        let policy_type = text(policy, "type");
        if !matches!(policy_type, "Percent" | "Pods") {
            errors.not_supported(path.child("type"), policy_type, &["Percent", "Pods"]);
        }
        let (value, period) = (number(policy, "value"), number(policy, "periodSeconds").unwrap_or(0));
        if let Some(value) = Some(value.unwrap_or(0)).filter(|&it| it <= 0) {
            errors.invalid(path.child("value"), value, "must be greater than zero");
        }
        if period <= 0 {
            errors.invalid(path.child("periodSeconds"), period, "must be greater than zero");
        } else if period > PERIOD_MAX {
            let text = format!("must be less than or equal to {PERIOD_MAX}");
            errors.invalid(path.child("periodSeconds"), period, text);
        }
    }
}
