//! The strategy of HorizontalPodAutoscalers, which are stored as `autoscaling/v2`.

mod conversion;
mod validation;

use super::facts::{Facts, Generation};
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::{Map, Value, json};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{copy_field, default_value, ensure_object, object_mut};

const V1: &str = "autoscaling/v1";
const V2: &str = "autoscaling/v2";

/// The strategy of HorizontalPodAutoscalers.
#[derive(Debug)]
pub(crate) struct HorizontalPodAutoscaler {
    /// The version of Kubernetes. Since 1.37, the objects have a generation (`HPAGeneration`), and `minReplicas` may be
    /// zero (`HPAScaleToZero`).
    pub(crate) version: KubernetesVersion,
}

/// Field of `v1` with the target of the CPU metric.
const TARGET: &str = "targetCPUUtilizationPercentage";

impl Strategy for HorizontalPodAutoscaler {
    fn facts(&self) -> &Facts {
        const FACTS: Facts = Facts {
            stored_api_version: Some(V2),
            ..Facts::DEFAULT
        };
        if self.version >= KubernetesVersion::V1_37 {
            return &Facts {
                generation: Generation::FromCreate,
                ..FACTS
            };
        }
        &FACTS
    }

    fn default(&self, object: &mut Object) {
        let is_v1 = object.api_version() == V1;
        let annotations = object.metadata().and_then(|it| it.get("annotations"));
        let has_metrics = annotations.is_some_and(|it| it.get(conversion::METRICS).is_some());
        let spec = ensure_object(object, "spec");
        default_value(spec, "minReplicas", 1);
        if !is_v1 {
            default_v2(spec);
            conversion::drop_annotations(object);
        } else if !spec.contains_key(TARGET) && !has_metrics {
            spec.insert(TARGET.into(), 80.into());
        }
    }

    fn convert(&self, object: &mut Object, api_version: &str) {
        match (object.api_version(), api_version) {
            (V1, V2) => {
                conversion::to_v2(object);
                default_v2(ensure_object(object, "spec"));
            }
            (V2, V1) => conversion::to_v1(object),
            _ => {}
        }
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        // The new status has the fields that are always encoded in the stored version, not in the requested one.
        object.insert("status".into(), json!({"desiredReplicas": 0, "currentMetrics": null}));
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validation::validate(self.version, object, None, errors);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            copy_field(old, object, "spec");
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource.is_empty() {
            validation::validate(self.version, object, Some(old), errors);
        } else {
            validation::validate_status(object, errors);
        }
    }
}

fn default_v2(spec: &mut Map) {
    if Cursor::root(spec).is_empty("metrics") {
        spec.insert("metrics".into(), json!([cpu_metric(json!(80))]));
    }
    let Some(behavior) = object_mut(spec, "behavior") else {
        return;
    };
    let up = ensure_object(behavior, "scaleUp");
    default_value(up, "stabilizationWindowSeconds", 0);
    default_value(up, "selectPolicy", "Max");
    if is_unset(up, "policies") {
        let policies = json!([
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ]);
        up.insert("policies".into(), policies);
    }
    let down = ensure_object(behavior, "scaleDown");
    default_value(down, "selectPolicy", "Max");
    if is_unset(down, "policies") {
        let policies = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
        down.insert("policies".into(), policies);
    }
}

/// Returns the metric of `v2` for `targetCPUUtilizationPercentage` of `v1`.
fn cpu_metric(percentage: Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percentage});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

/// Returns `true` if a list is absent or null. An empty list does not get defaults, and is refused by validation.
fn is_unset(map: &Map, field: &str) -> bool {
    map.get(field).is_none_or(Value::is_null)
}

#[cfg(test)]
mod tests;
