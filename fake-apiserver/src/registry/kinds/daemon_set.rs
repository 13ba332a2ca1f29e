//! The strategy of DaemonSets.

use super::deployment::unsupported_strategy;
use super::facts::{Facts, Generation};
use super::pod::defaults::default_template;
use super::pod::validation::Template;
use super::pod::warnings;
use super::strategy::{Context, Strategy};
use super::workload_rules::{
    Selection, default_conditions, number_or_percent, parse_int_error, unchanged_selector, validate_always,
    validate_at_most_all, validate_collisions, validate_counts, validate_number_or_percent, validate_selected,
    wrong_selector,
};
use crate::api::field::FieldErrors;
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_text, default_value, ensure_object};
use crate::registry::types::labels;

/// Annotation that replaces the former field `spec.templateGeneration`. Each change of the template increments its
/// value.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Counts in the status that are encoded even if they are zero.
const SHOWN_COUNTS: [&str; 4] = [
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
];

/// The strategy of DaemonSets.
#[derive(Debug)]
pub(crate) struct DaemonSetStrategy;

impl Strategy for DaemonSetStrategy {
    fn facts(&self) -> &Facts {
        &Facts {
            generation: Generation::FromCreate,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        let annotations = ensure_object(object.metadata_mut(), "annotations");
        default_text(annotations, TEMPLATE_GENERATION, "0");
        let spec = ensure_object(object, "spec");
        default_template(spec);
        let strategy = ensure_object(spec, "updateStrategy");
        default_text(strategy, "type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate" {
            let rolling = ensure_object(strategy, "rollingUpdate");
            default_value(rolling, "maxUnavailable", 1);
            default_value(rolling, "maxSurge", 0);
        }
        default_value(spec, "revisionHistoryLimit", 10);
        let status = ensure_object(object, "status");
        for count in SHOWN_COUNTS {
            default_value(status, count, 0);
        }
        default_conditions(status, &["lastTransitionTime"]);
    }

    /// Returns the error for an invalid template generation (`Convert_v1_DaemonSet_To_apps_DaemonSet`).
    fn conversion_error(&self, object: &Object) -> Option<String> {
        let object = Cursor::root(object);
        let annotations = object.at("metadata.annotations");
        let generation = annotations.entry(TEMPLATE_GENERATION);
        generation.is_set("").then(|| parse_int_error(generation.as_text()))?
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        let counts = SHOWN_COUNTS.iter().map(|count| ((*count).to_owned(), json!(0)));
        object.insert("status".into(), Value::Object(counts.collect()));
        set_template_generation(object, template_generation(object).max(1));
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        let changed = context.subresource.is_empty() && has_new_template(object, old);
        let generation = template_generation(old).saturating_add(i64::from(changed));
        set_template_generation(object, generation);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_spec(&Cursor::root(object).at("spec"), errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        let (new, was) = (Cursor::root(object), Cursor::root(old));
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
            validate_counts(&new.at("status"), &COUNTS, errors);
            validate_collisions(&new.at("status"), &was.at("status"), errors);
            return;
        }
        unchanged_selector(&new.at("spec"), &was.at("spec"), errors);
        self.validate(object, errors);
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        warnings::of_workload(object, old, "spec.template", "", |old| has_new_template(object, old))
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        !Cursor::root(object).same(&Cursor::root(old), "spec")
    }
}

fn has_new_template(object: &Object, old: &Object) -> bool {
    !Cursor::root(object).same(&Cursor::root(old), "spec.template")
}

fn template_generation(object: &Object) -> i64 {
    let object = Cursor::root(object);
    let annotations = object.at("metadata.annotations");
    annotations.entry(TEMPLATE_GENERATION).as_text().parse().unwrap_or(0)
}

fn set_template_generation(object: &mut Object, generation: i64) {
    let annotations = ensure_object(object.metadata_mut(), "annotations");
    annotations.insert(TEMPLATE_GENERATION.into(), Value::from(generation.to_string()));
}

fn validate_spec(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let (selector, template) = (spec.at("selector"), Template::of(spec));
    labels::validate_selector(&selector, errors);
    let selection = Selection::of(&selector);
    if !matches!(selection, Selection::Wrong) {
        validate_selected(&selection, &template, errors);
    }
    if matches!(selection, Selection::Everything) {
        wrong_selector(&selector, "empty selector is invalid for daemonset", errors);
    }
    template.validate(errors);
    validate_always(&template, "DaemonSet", errors);
    spec.at("minReadySeconds").check_not_negative(errors);
    validate_rollout(&spec.at("updateStrategy"), errors);
    spec.at("revisionHistoryLimit").check_not_negative(errors);
}

fn validate_rollout(strategy: &Cursor<'_>, errors: &mut FieldErrors) {
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let rolling = strategy.at("rollingUpdate");
            if !rolling.is_set("") {
                errors.required(rolling, "");
                return;
            }
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            validate_number_or_percent(&unavailable, errors);
            validate_number_or_percent(&surge, errors);
            validate_at_most_all(&unavailable, errors);
            validate_at_most_all(&surge, errors);
            match (number_or_percent(&unavailable) != 0, number_or_percent(&surge) != 0) {
                (true, true) => {
                    let detail = "may not be set when maxUnavailable is non-zero";
                    errors.invalid(surge, surge.to_value(), detail);
                }
                (false, false) => errors.required(unavailable, "cannot be 0 when maxSurge is 0"),
                (true, false) | (false, true) => {}
            }
        }
        _ => unsupported_strategy(strategy, &["RollingUpdate", "OnDelete"], errors),
    }
}
