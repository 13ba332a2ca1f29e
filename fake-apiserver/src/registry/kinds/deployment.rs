//! The strategy of Deployments.

use super::facts::{Facts, Generation};
use super::pod::defaults::default_template;
use super::pod::{go_struct, warnings};
use super::strategy::{Context, Strategy};
use super::workload_rules::{
    default_conditions, number_or_percent, parse_int_error, unchanged_selector, validate_at_most_all,
    validate_available, validate_collisions, validate_counts, validate_number_or_percent, validate_parts,
    validate_selector, validate_template,
};
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors};
use crate::api::json::json;
use crate::api::object::Object;
use crate::registry::types::check::NEGATIVE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{copy_field, default_text, default_value, ensure_object, remove_annotations};

/// Annotation that replaces the former field `spec.rollbackTo.revision`.
const ROLLBACK: &str = "deprecated.deployment.rollback.to";

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
        let revision = rollback(object);
        set_rollback(object, revision);
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

    /// Returns the error for an invalid rollback annotation (`Convert_v1_Deployment_To_apps_Deployment`).
    fn conversion_error(&self, object: &Object) -> Option<String> {
        let object = Cursor::root(object);
        let annotations = object.at("metadata.annotations");
        let text = annotations.entry(ROLLBACK).as_text().to_owned();
        let why = (!text.is_empty()).then(|| parse_int_error(&text))??;
        Some(format!("failed to parse annotation[{ROLLBACK}]={text} as int64: {why}"))
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".into(), json!({}));
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status"
            && let Some(old_meta) = old.metadata()
        {
            copy_field(old_meta, object.metadata_mut(), "labels");
            // In kube-apiserver, this annotation is a field of the spec.
            set_rollback(object, rollback(old));
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_spec(&Cursor::root(object).at("spec"), rollback(object), errors);
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

/// Returns the revision of the rollback annotation.
fn rollback(object: &Object) -> Option<i64> {
    let object = Cursor::root(object);
    let annotations = object.at("metadata.annotations");
    annotations.entry(ROLLBACK).as_text().parse().ok()
}

fn set_rollback(object: &mut Object, revision: Option<i64>) {
    match revision {
        Some(revision) => {
            let annotations = ensure_object(object.metadata_mut(), "annotations");
            annotations.insert(ROLLBACK.into(), revision.to_string().into());
        }
        None => remove_annotations(object, &[ROLLBACK]),
    }
}

fn validate_spec(spec: &Cursor<'_>, rollback: Option<i64>, errors: &mut FieldErrors) {
    spec.at("replicas").check_not_negative(errors);
    validate_selector(&spec.at("selector"), "deployment", errors);
    validate_template(spec, "ReplicaSet", errors);
    validate_rollout(&spec.at("strategy"), errors);
    spec.at("minReadySeconds").check_not_negative(errors);
    spec.at("revisionHistoryLimit").check_not_negative(errors);
    if let Some(revision) = rollback.filter(|it| *it < 0) {
        errors.invalid(spec.at("rollback.version"), revision, NEGATIVE);
    }
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
