//! The strategy of DaemonSets.

use serde_json::{Value, json};

use super::deployment::unsupported_strategy;
use super::pod::defaults::default_template;
use super::pod::validation::Template;
use super::pod::warnings;
use super::strategy::{Context, Strategy};
use super::workload_rules::{
    Selection, default_conditions, number_or_percent, parts, unchanged_selector, validate_always, validate_at_most_all,
    validate_collisions, validate_counts, validate_number_or_percent, validate_selected, wrong_selector,
};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::check::not_negative;
use crate::registry::types::labels;
use crate::registry::types::view::{
    JsonMap, default_number, default_text, list, object, object_made, object_or_empty, same, text, value_of,
};

/// Counts the changes of the template; a field of old, shown as an annotation.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The numbers of a status that are always shown.
const SHOWN_COUNTS: [&str; 4] = [
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
];

/// DaemonSets.
#[derive(Debug)]
pub(crate) struct DaemonSetStrategy;

impl Strategy for DaemonSetStrategy {
    fn default(&self, object: &mut Object) {
        if let Some(annotations) = object_made(object.metadata_mut(), "annotations") {
            default_text(annotations, TEMPLATE_GENERATION, "0");
        }
        if let Some(spec) = object_made(object, "spec") {
            default_template(spec);
            if let Some(strategy) = object_made(spec, "updateStrategy") {
                default_text(strategy, "type", "RollingUpdate");
                if text(strategy, "type") == "RollingUpdate"
                    && let Some(rolling) = object_made(strategy, "rollingUpdate")
                {
                    default_number(rolling, "maxUnavailable", 1);
                    default_number(rolling, "maxSurge", 0);
                }
            }
            default_number(spec, "revisionHistoryLimit", 10);
        }
        if let Some(status) = object_made(object, "status") {
            for count in SHOWN_COUNTS {
                default_number(status, count, 0);
            }
            default_conditions(status, &["lastTransitionTime"]);
        }
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        let counts = SHOWN_COUNTS.iter().map(|count| ((*count).to_owned(), json!(0)));
        object.insert("status".to_owned(), Value::Object(counts.collect()));
        set_template_generation(object, template_generation(object).max(1));
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        let changed = context.subresource.is_empty() && !same(parts(object).0, parts(old).0, "template");
        let generation = template_generation(old).saturating_add(i64::from(changed));
        set_template_generation(object, generation);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_spec(object_or_empty(object, "spec"), &FieldPath::new("spec"), errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        let ((spec, status), (old_spec, old_status)) = (parts(object), parts(old));
        if context.subresource == "status" {
            const COUNTS: [&str; 9] = [
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ];
            let path = FieldPath::new("status");
            validate_counts(status, &COUNTS, &path, errors);
            validate_collisions(status, old_status, &path, errors);
            return;
        }
        unchanged_selector(spec, old_spec, &FieldPath::new("spec"), errors);
        self.validate(object, errors);
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        warnings::of_workload(object, old, "spec.template", "", |old| {
            !same(parts(object).0, parts(old).0, "template")
        })
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        !same(object, old, "spec")
    }
}

fn template_generation(object: &Object) -> i64 {
    let annotations = object_or_empty(object_or_empty(object, "metadata"), "annotations");
    text(annotations, TEMPLATE_GENERATION).parse().unwrap_or(0)
}

fn set_template_generation(object: &mut Object, generation: i64) {
    if let Some(annotations) = object_made(object.metadata_mut(), "annotations") {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), Value::String(generation.to_string()));
    }
}

fn validate_spec(spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    labels::validate_selector(spec.get("selector"), &path.child("selector"), errors);
    let template = Template::of(spec);
    let selector = object(spec, "selector");
    match Selection::of(selector) {
        Selection::Wrong => {}
        selection => validate_selected(&selection, &template, path, errors),
    }
    let empty =
        |selector| object_or_empty(selector, "matchLabels").is_empty() && list(selector, "matchExpressions").is_empty();
    if selector.is_some_and(empty) {
        wrong_selector(spec, path, "empty selector is invalid for daemonset", errors);
    }
    template.validate(&path.child("template"), errors);
    validate_always(&template, "DaemonSet", path, errors);
    not_negative(spec, "minReadySeconds", path, errors);
    validate_rollout(
        object_or_empty(spec, "updateStrategy"),
        &path.child("updateStrategy"),
        errors,
    );
    not_negative(spec, "revisionHistoryLimit", path, errors);
}

fn validate_rollout(strategy: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let Some(rolling) = object(strategy, "rollingUpdate") else {
                errors.required(path.child("rollingUpdate"), "");
                return;
            };
            let path = path.child("rollingUpdate");
            validate_number_or_percent(rolling, "maxUnavailable", &path, errors);
            validate_number_or_percent(rolling, "maxSurge", &path, errors);
            validate_at_most_all(rolling, "maxUnavailable", &path, errors);
            validate_at_most_all(rolling, "maxSurge", &path, errors);
            let number = |field| number_or_percent(rolling, field);
            match (number("maxUnavailable") != 0, number("maxSurge") != 0) {
                (true, true) => {
                    let detail = "may not be set when maxUnavailable is non-zero";
                    errors.invalid(path.child("maxSurge"), value_of(rolling, "maxSurge"), detail);
                }
                (false, false) => errors.required(path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => unsupported_strategy(strategy, &["RollingUpdate", "OnDelete"], path, errors),
    }
}
