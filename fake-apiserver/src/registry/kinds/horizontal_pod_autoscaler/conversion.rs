//! Converts between the two versions of HorizontalPodAutoscaler. In `v1`, fields that only exist in `v2` are stored in
//! annotations.

use super::{V1, V2, cpu_metric};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{ensure_object, remove_annotations};

pub(super) const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const SCALE_DOWN_TOLERANCE: &str = "autoscaling.alpha.kubernetes.io/scale-down-tolerance";
const SCALE_UP_TOLERANCE: &str = "autoscaling.alpha.kubernetes.io/scale-up-tolerance";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// A metric source: the name of its field, and pairs of a field name in `v1` and a path in `v2`, in the order of `v1`.
/// `spec` is used for target metrics, and `status` for current metrics.
struct Source {
    field: &'static str,
    spec: &'static [(&'static str, &'static str)],
    status: &'static [(&'static str, &'static str)],
}

const SOURCES: [Source; 5] = [
    Source {
        field: "object",
        spec: &[
            ("target", "describedObject"),
            ("metricName", "metric.name"),
            ("targetValue", "target.value"),
            ("selector", "metric.selector"),
            ("averageValue", "target.averageValue"),
        ],
        status: &[
            ("target", "describedObject"),
            ("metricName", "metric.name"),
            ("currentValue", "current.value"),
            ("selector", "metric.selector"),
            ("averageValue", "current.averageValue"),
        ],
    },
    Source {
        field: "pods",
        spec: &[
            ("metricName", "metric.name"),
            ("targetAverageValue", "target.averageValue"),
            ("selector", "metric.selector"),
        ],
        status: &[
            ("metricName", "metric.name"),
            ("currentAverageValue", "current.averageValue"),
            ("selector", "metric.selector"),
        ],
    },
    Source {
        field: "resource",
        spec: &[
            ("name", "name"),
            ("targetAverageUtilization", "target.averageUtilization"),
            ("targetAverageValue", "target.averageValue"),
        ],
        status: &[
            ("name", "name"),
            ("currentAverageUtilization", "current.averageUtilization"),
            ("currentAverageValue", "current.averageValue"),
        ],
    },
    Source {
        field: "containerResource",
        spec: &[
            ("name", "name"),
            ("targetAverageUtilization", "target.averageUtilization"),
            ("targetAverageValue", "target.averageValue"),
            ("container", "container"),
        ],
        status: &[
            ("name", "name"),
            ("currentAverageUtilization", "current.averageUtilization"),
            ("currentAverageValue", "current.averageValue"),
            ("container", "container"),
        ],
    },
    Source {
        field: "external",
        spec: &[
            ("metricName", "metric.name"),
            ("metricSelector", "metric.selector"),
            ("targetValue", "target.value"),
            ("targetAverageValue", "target.averageValue"),
        ],
        status: &[
            ("metricName", "metric.name"),
            ("metricSelector", "metric.selector"),
            ("currentValue", "current.value"),
            ("currentAverageValue", "current.averageValue"),
        ],
    },
];

/// Fields of scaling rules: their names in the annotation, which are the Go names of the internal type, and in `v2`.
const RULE_FIELDS: [(&str, &str); 4] = [
    ("StabilizationWindowSeconds", "stabilizationWindowSeconds"),
    ("SelectPolicy", "selectPolicy"),
    ("Policies", "policies"),
    ("Tolerance", "tolerance"),
];
const POLICY_FIELDS: [(&str, &str); 3] = [("Type", "type"), ("Value", "value"), ("PeriodSeconds", "periodSeconds")];

/// Converts an object from `autoscaling/v2` to `autoscaling/v1`.
pub(super) fn to_v1(object: &mut Object) {
    let mut annotations: Vec<(&str, String)> = Vec::new();
    let is_cpu = |metric: &Map| {
        Cursor::root(metric).text("resource.name") == "cpu"
            && Cursor::root(metric).is_set("resource.target.averageUtilization")
    };
    let metrics = Cursor::root(object).maps("spec.metrics");
    let (cpu, others): (Vec<_>, Vec<_>) = metrics.partition(|metric| is_cpu(metric));
    let percentage = cpu
        .first()
        .and_then(|metric| Cursor::root(metric).get("resource.target.averageUtilization"))
        .cloned();
    if !others.is_empty() {
        let printed = others
            .into_iter()
            .map(|metric| print_metric(metric, |source| source.spec));
        annotations.push((METRICS, print_list(printed)));
    }
    if let Some(behavior) = Cursor::root(object).map("spec.behavior") {
        annotations.push((BEHAVIOR, print_behavior(behavior)));
    }
    let current: Vec<_> = Cursor::root(object).maps("status.currentMetrics").collect();
    let current_cpu = current
        .iter()
        .filter(|metric| Cursor::root(metric).text("resource.name") == "cpu")
        .find_map(|metric| Cursor::root(metric).get("resource.current.averageUtilization"))
        .cloned();
    if !current.is_empty() {
        let printed = current
            .into_iter()
            .map(|metric| print_metric(metric, |source| source.status));
        annotations.push((CURRENT_METRICS, print_list(printed)));
    }
    let conditions = Cursor::root(object).list("status.conditions");
    if !conditions.is_empty() {
        let fields = ["type", "status", "lastTransitionTime", "reason", "message"];
        let printed = Cursor::root(object).maps("status.conditions").map(|condition| {
            print_fields(fields.map(|field| {
                let value = Cursor::root(condition).get(field).map(Value::to_string);
                // Go always encodes the transition time, even if it is unset.
                let null = || (field == "lastTransitionTime").then(|| "null".to_owned());
                (field, value.or_else(null))
            }))
        });
        annotations.push((CONDITIONS, print_list(printed)));
    }
    let spec = ensure_object(object, "spec");
    spec.remove("metrics");
    spec.remove("behavior");
    if let Some(percentage) = percentage {
        spec.insert("targetCPUUtilizationPercentage".into(), percentage);
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("currentMetrics");
        status.remove("conditions");
        // `currentReplicas` is always encoded in `v1`, but omitted in `v2` if it is zero.
        status.entry("currentReplicas").or_insert(json!(0));
        if let Some(percentage) = current_cpu {
            status.insert("currentCPUUtilizationPercentage".into(), percentage);
        }
    }
    if !annotations.is_empty() {
        let map = ensure_object(object.metadata_mut(), "annotations");
        map.extend(
            annotations
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.into())),
        );
    }
    object.insert("apiVersion".into(), V1.into());
}

/// Converts an object from `autoscaling/v1` to `autoscaling/v2`. Annotations that cannot be parsed are dropped.
pub(super) fn to_v2(object: &mut Object) {
    let [metrics, behavior, current, conditions] =
        [METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS].map(|key| take_annotation(object, key));
    let spec = ensure_object(object, "spec");
    let mut all: Vec<Value> = read_metrics(metrics, |source| source.spec);
    if let Some(percentage) = spec.remove("targetCPUUtilizationPercentage").filter(|it| !it.is_null()) {
        all.push(cpu_metric(percentage));
    }
    if !all.is_empty() {
        spec.insert("metrics".into(), all.into());
    }
    if let Some(Value::Object(behavior)) = behavior {
        spec.insert("behavior".into(), read_behavior(&behavior));
    }
    let mut all: Vec<Value> = read_metrics(current, |source| source.status);
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let percentage = status
            .remove("currentCPUUtilizationPercentage")
            .filter(|it| !it.is_null());
        if let (Some(percentage), true) = (percentage, all.is_empty()) {
            let current = json!({"averageUtilization": percentage});
            all.push(json!({"type": "Resource", "resource": {"name": "cpu", "current": current}}));
        }
        if status.get("currentReplicas") == Some(&json!(0)) {
            status.remove("currentReplicas");
        }
        let all = if all.is_empty() { Value::Null } else { all.into() };
        status.insert("currentMetrics".into(), all);
        if let Some(conditions) = conditions {
            status.insert("conditions".into(), conditions);
        }
    }
    drop_annotations(object);
    object.insert("apiVersion".into(), V2.into());
}

/// Drops the annotations that represent fields of `v2` in other versions
/// (`DropRoundTripHorizontalPodAutoscalerAnnotations`).
pub(super) fn drop_annotations(object: &mut Object) {
    let keys = [
        METRICS,
        BEHAVIOR,
        CURRENT_METRICS,
        CONDITIONS,
        SCALE_DOWN_TOLERANCE,
        SCALE_UP_TOLERANCE,
    ];
    remove_annotations(object, &keys);
}

fn take_annotation(object: &mut Object, key: &str) -> Option<Value> {
    let annotations = object.metadata()?.get("annotations")?.as_object()?;
    if !annotations.contains_key(key) {
        return None;
    }
    let annotations = ensure_object(object.metadata_mut(), "annotations");
    let text = annotations.remove(key);
    if annotations.is_empty() {
        object.metadata_mut().remove("annotations");
    }
    serde_json::from_str(text.as_ref().and_then(Value::as_str)?).ok()
}

type Names = &'static [(&'static str, &'static str)];

fn print_metric(metric: &Map, names: fn(&Source) -> Names) -> String {
    let mut fields = vec![("type", Cursor::root(metric).get("type").map(Value::to_string))];
    for source in &SOURCES {
        if let Some(value) = Cursor::root(metric).map(source.field) {
            // The current average value of these sources is always encoded in `v1`.
            let shows_none = |name| name == "currentAverageValue" && source.field.to_lowercase().ends_with("resource");
            let value = names(source).iter().map(|(name, path)| {
                let printed = Cursor::root(value).get(path).map(|value| print_value(name, value));
                (*name, printed.or_else(|| shows_none(*name).then(|| "\"0\"".to_owned())))
            });
            fields.push((source.field, Some(print_fields(value))));
        }
    }
    print_fields(fields)
}

/// Formats a value as JSON. References (`target`) have their fields in the order of the Go type.
fn print_value(name: &str, value: &Value) -> String {
    match value.as_object() {
        Some(reference) if name == "target" => print_fields(
            ["kind", "name", "apiVersion"].map(|it| (it, Cursor::root(reference).get(it).map(Value::to_string))),
        ),
        _ => value.to_string(),
    }
}

fn read_metrics(metrics: Option<Value>, names: fn(&Source) -> Names) -> Vec<Value> {
    let Some(Value::Array(metrics)) = metrics else {
        return Vec::new();
    };
    let metrics = metrics.iter().filter_map(Value::as_object);
    metrics.map(|metric| read_metric(metric, names)).collect()
}

fn read_metric(metric: &Map, names: fn(&Source) -> Names) -> Value {
    let mut read = Map::new();
    read.insert("type".into(), Cursor::root(metric).text("type").into());
    for source in &SOURCES {
        let Some(value) = Cursor::root(metric).map(source.field) else {
            continue;
        };
        let mut fields = Map::new();
        for (name, path) in names(source) {
            let Some(value) = Cursor::root(value).get(name) else {
                continue;
            };
            match path.split_once('.') {
                None => {
                    fields.insert((*path).into(), value.clone());
                }
                Some((parent, field)) => {
                    let parent = ensure_object(&mut fields, parent);
                    parent.insert(field.into(), value.clone());
                }
            }
        }
        if let Some(target) = fields.get_mut("target").and_then(Value::as_object_mut) {
            let target_type = ["averageUtilization", "averageValue"]
                .iter()
                .position(|field| target.contains_key(field));
            let target_type = match target_type {
                Some(0) => "Utilization",
                Some(_) => "AverageValue",
                None => "Value",
            };
            target.insert("type".into(), target_type.into());
        }
        read.insert(source.field.into(), fields.into());
    }
    Value::Object(read)
}

fn print_behavior(behavior: &Map) -> String {
    let rules = [("ScaleUp", "scaleUp"), ("ScaleDown", "scaleDown")];
    print_fields(rules.map(|(name, field)| {
        let rule = Cursor::root(behavior).map(field);
        let printed = rule.map_or_else(|| "null".to_owned(), print_rule);
        (name, Some(printed))
    }))
}

fn print_rule(rule: &Map) -> String {
    print_fields(RULE_FIELDS.map(|(name, field)| {
        let printed = if field == "policies" {
            print_list(Cursor::root(rule).maps(field).map(|policy| {
                print_fields(
                    POLICY_FIELDS.map(|(name, field)| (name, Cursor::root(policy).get(field).map(Value::to_string))),
                )
            }))
        } else {
            Cursor::root(rule)
                .get(field)
                .map_or_else(|| "null".to_owned(), Value::to_string)
        };
        (name, Some(printed))
    }))
}

fn read_behavior(behavior: &Map) -> Value {
    let mut read = Map::new();
    for (name, field) in [("ScaleUp", "scaleUp"), ("ScaleDown", "scaleDown")] {
        let Some(rule) = Cursor::root(behavior).map(name) else {
            continue;
        };
        let mut fields = renamed(rule, &RULE_FIELDS);
        if let Some(Value::Array(policies)) = fields.get_mut("policies") {
            for policy in policies {
                if let Some(fields) = policy.as_object() {
                    *policy = renamed(fields, &POLICY_FIELDS).into();
                }
            }
        }
        read.insert(field.into(), fields.into());
    }
    Value::Object(read)
}

fn renamed(map: &Map, names: &[(&str, &str)]) -> Map {
    let fields = names
        .iter()
        .filter_map(|(from, to)| Some(((*to).to_owned(), Cursor::root(map).get(from)?.clone())));
    fields.collect()
}

/// Formats a JSON object with its fields in this order; absent fields are omitted.
fn print_fields<'a>(fields: impl IntoIterator<Item = (&'a str, Option<String>)>) -> String {
    let fields = fields.into_iter();
    let fields: Vec<String> = fields
        .filter_map(|(name, value)| Some(format!("\"{name}\":{}", value?)))
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn print_list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    format!("[{}]", items.join(","))
}
