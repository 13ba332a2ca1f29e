//! The strategy of Deployments.

use serde_json::{Value, json};

use super::pod::defaults::default_template;
use super::pod::{go_struct, warnings};
use super::strategy::{Context, Strategy};
use super::workload_rules::{
    default_conditions, number_or_percent, parts, unchanged_selector, validate_at_most_all, validate_available,
    validate_collisions, validate_counts, validate_number_or_percent, validate_parts, validate_selector,
    validate_template,
};
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::check::not_negative;
use crate::registry::types::view::{
    JsonMap, copy_field, default_number, default_text, default_value, integer, object, object_made, object_or_empty,
    same, text,
};

/// Deployments.
#[derive(Debug)]
pub(crate) struct DeploymentStrategy;

impl Strategy for DeploymentStrategy {
    fn default(&self, object: &mut Object) {
        if let Some(spec) = object_made(object, "spec") {
            default_number(spec, "replicas", 1);
            default_template(spec);
            if let Some(strategy) = object_made(spec, "strategy") {
                default_text(strategy, "type", "RollingUpdate");
                if text(strategy, "type") == "RollingUpdate"
                    && let Some(rolling) = object_made(strategy, "rollingUpdate")
                {
                    default_value(rolling, "maxUnavailable", || Value::String("25%".to_owned()));
                    default_value(rolling, "maxSurge", || Value::String("25%".to_owned()));
                }
            }
            default_number(spec, "revisionHistoryLimit", 10);
            default_number(spec, "progressDeadlineSeconds", 600);
        }
        if let Some(status) = object_made(object, "status") {
            default_conditions(status, &["lastUpdateTime", "lastTransitionTime"]);
        }
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".to_owned(), json!({}));
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            let old_meta = object_or_empty(old, "metadata");
            copy_field(old_meta, object.metadata_mut(), "labels");
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_spec(object_or_empty(object, "spec"), &FieldPath::new("spec"), errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        let ((spec, status), (old_spec, old_status)) = (parts(object), parts(old));
        if context.subresource == "status" {
            validate_status(status, old_status, &FieldPath::new("status"), errors);
            return;
        }
        self.validate(object, errors);
        unchanged_selector(spec, old_spec, &FieldPath::new("spec"), errors);
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        warnings::of_workload(object, old, "spec.template", warnings::NAMES_PODS, |old| {
            self.raises_generation(object, old)
        })
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        let (meta, old_meta) = (object_or_empty(object, "metadata"), object_or_empty(old, "metadata"));
        !same(object, old, "spec") || !same(meta, old_meta, "annotations")
    }
}

fn validate_spec(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    not_negative(spec, "replicas", path, errors);
    validate_selector(spec, "deployment", path, errors);
    validate_template(spec, "ReplicaSet", path, errors);
    validate_rollout(object_or_empty(spec, "strategy"), &path.child("strategy"), errors);
    not_negative(spec, "minReadySeconds", path, errors);
    not_negative(spec, "revisionHistoryLimit", path, errors);
    not_negative(spec, "progressDeadlineSeconds", path, errors);
    if let Some(deadline) = integer(spec, "progressDeadlineSeconds")
        && deadline <= integer(spec, "minReadySeconds").unwrap_or(0)
    {
        errors.invalid(
            path.child("progressDeadlineSeconds"),
            deadline,
            "must be greater than minReadySeconds",
        );
    }
}

fn validate_rollout(strategy: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let rolling = object(strategy, "rollingUpdate");
    match (text(strategy, "type"), rolling) {
        ("Recreate", None) => {}
        ("Recreate", Some(_)) => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.forbidden(path.child("rollingUpdate"), detail);
        }
        ("RollingUpdate", None) => {
            errors.required(path.child("rollingUpdate"), "this should be defaulted and never be nil");
        }
        ("RollingUpdate", Some(rolling)) => {
            let path = path.child("rollingUpdate");
            validate_number_or_percent(rolling, "maxUnavailable", &path, errors);
            validate_number_or_percent(rolling, "maxSurge", &path, errors);
            let number = |field| number_or_percent(rolling, field);
            if number("maxUnavailable") == 0 && number("maxSurge") == 0 {
                let shown = crate::registry::types::view::value_of(rolling, "maxUnavailable");
                errors.invalid(path.child("maxUnavailable"), shown, "may not be 0 when `maxSurge` is 0");
            }
            validate_at_most_all(rolling, "maxUnavailable", &path, errors);
        }
        _ => unsupported_strategy(strategy, &["Recreate", "RollingUpdate"], path, errors),
    }
}

/// An update strategy of no known type, which is printed whole.
pub(super) fn unsupported_strategy(strategy: &JsonMap, supported: &[&str], path: &FieldPath, errors: &mut FieldErrors) {
    let printed = go_struct(strategy, &["type", "rollingUpdate"]);
    let supported: Vec<String> = supported.iter().map(|it| format!("\"{it}\"")).collect();
    errors.push(FieldError {
        path: path.clone(),
        kind: FieldErrorKind::NotSupported,
        value: None,
        detail: format!("{printed}: supported values: {}", supported.join(", ")),
    });
}

fn validate_status(status: &JsonMap, old: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    const COUNTS: [&str; 8] = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    validate_counts(status, &COUNTS, path, errors);
    validate_parts(
        status,
        &["updatedReplicas", "readyReplicas", "availableReplicas"],
        path,
        errors,
    );
    validate_available(status, "cannot be greater than readyReplicas", path, errors);
    validate_collisions(status, old, path, errors);
}
