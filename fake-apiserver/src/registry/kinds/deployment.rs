//! The strategy of Deployments.

use super::facts::{Facts, Generation};
use super::pod::defaults::default_template;
use super::pod::{go_struct, warnings};
use super::strategy::{Context, Strategy};
use super::workload_rules::{
    default_conditions, number_or_percent, unchanged_selector, validate_at_most_all, validate_available,
    validate_collisions, validate_counts, validate_number_or_percent, validate_parts, validate_selector,
    validate_template,
};
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors};
use crate::api::json::json;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{copy_field, default_text, default_value, ensure_object};

/// The strategy of Deployments.
#[derive(Debug)]
pub(crate) struct DeploymentStrategy;

impl Strategy for DeploymentStrategy {
    fn facts(&self) -> &Facts {
        &Facts {
            generation: Generation::FromCreate,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        let spec = ensure_object(object, "spec");
        default_value(spec, "replicas", 1);
        default_template(spec);
        let strategy = ensure_object(spec, "strategy");
        default_text(strategy, "type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate" {
            let rolling = ensure_object(strategy, "rollingUpdate");
            default_value(rolling, "maxUnavailable", "25%");
            default_value(rolling, "maxSurge", "25%");
        }
        default_value(spec, "revisionHistoryLimit", 10);
        default_value(spec, "progressDeadlineSeconds", 600);
        default_conditions(
            ensure_object(object, "status"),
            &["lastUpdateTime", "lastTransitionTime"],
        );
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".into(), json!({}));
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status"
            && let Some(old_meta) = old.metadata()
        {
            copy_field(old_meta, object.metadata_mut(), "labels");
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_spec(&Cursor::root(object).at("spec"), errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        let (new, was) = (Cursor::root(object), Cursor::root(old));
        if context.subresource == "status" {
            validate_status(&new.at("status"), &was.at("status"), errors);
            return;
        }
        self.validate(object, errors);
        unchanged_selector(&new.at("spec"), &was.at("spec"), errors);
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        warnings::of_workload(object, old, "spec.template", warnings::NAMES_PODS, |old| {
            self.raises_generation(object, old)
        })
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        let (new, was) = (Cursor::root(object), Cursor::root(old));
        !new.same(&was, "spec") || !new.same(&was, "metadata.annotations")
    }
}

fn validate_spec(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    spec.at("replicas").check_not_negative(errors);
    validate_selector(&spec.at("selector"), "deployment", errors);
    validate_template(spec, "ReplicaSet", errors);
    validate_rollout(&spec.at("strategy"), errors);
    spec.at("minReadySeconds").check_not_negative(errors);
    spec.at("revisionHistoryLimit").check_not_negative(errors);
    let deadline = spec.at("progressDeadlineSeconds");
    deadline.check_not_negative(errors);
    if let Some(seconds) = deadline.integer("")
        && seconds <= spec.integer("minReadySeconds").unwrap_or(0)
    {
        errors.invalid(deadline, seconds, "must be greater than minReadySeconds");
    }
}

fn validate_rollout(strategy: &Cursor<'_>, errors: &mut FieldErrors) {
    let rolling = strategy.at("rollingUpdate");
    match (strategy.text("type"), rolling.is_set("")) {
        ("Recreate", false) => {}
        ("Recreate", true) => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.forbidden(rolling, detail);
        }
        ("RollingUpdate", false) => errors.required(rolling, "this should be defaulted and never be nil"),
        ("RollingUpdate", true) => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            validate_number_or_percent(&unavailable, errors);
            validate_number_or_percent(&surge, errors);
            if number_or_percent(&unavailable) == 0 && number_or_percent(&surge) == 0 {
                errors.invalid(unavailable, unavailable.to_value(), "may not be 0 when `maxSurge` is 0");
            }
            validate_at_most_all(&unavailable, errors);
        }
        _ => unsupported_strategy(strategy, &["Recreate", "RollingUpdate"], errors),
    }
}

/// Adds an error about an update strategy of an unsupported type. The error shows the entire strategy.
pub(super) fn unsupported_strategy(strategy: &Cursor<'_>, supported: &[&str], errors: &mut FieldErrors) {
    let printed = go_struct(strategy, &["type", "rollingUpdate"]);
    let supported: Vec<String> = supported.iter().map(|it| format!("\"{it}\"")).collect();
    errors.push(FieldError {
        path: strategy.path(),
        kind: FieldErrorKind::NotSupported,
        value: None,
        detail: format!("{printed}: supported values: {}", supported.join(", ")),
    });
}

fn validate_status(status: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
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
    validate_counts(status, &COUNTS, errors);
    validate_parts(
        status,
        &["updatedReplicas", "readyReplicas", "availableReplicas"],
        errors,
    );
    validate_available(status, "cannot be greater than readyReplicas", errors);
    validate_collisions(status, old, errors);
}
