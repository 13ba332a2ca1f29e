//! The strategies of ReplicaSets and of their predecessors, ReplicationControllers.

use super::facts::{Facts, FieldLabels, Generation, Propagation};
use super::pod::defaults::{default_template, default_template_if_set};
use super::pod::validation::Template;
use super::pod::warnings;
use super::strategy::{Context, Strategy};
use super::workload_rules::{
    default_conditions, unchanged_selector, validate_always, validate_available, validate_counts, validate_parts,
    validate_selector, validate_template,
};
use crate::api::field::FieldErrors;
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_value, ensure_object};
use crate::registry::types::names;

/// The strategy of ReplicaSets.
#[derive(Debug)]
pub(crate) struct ReplicaSetStrategy;

impl Strategy for ReplicaSetStrategy {
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
        default_status(object);
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".into(), json!({ "replicas": 0 }));
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let spec = object.at("spec");
        spec.at("replicas").check_not_negative(errors);
        spec.at("minReadySeconds").check_not_negative(errors);
        validate_selector(&spec.at("selector"), "deployment", errors);
        validate_template(&spec, "ReplicaSet", errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource == "status" {
            validate_status(&Cursor::root(object).at("status"), errors);
            return;
        }
        self.validate(object, errors);
        let (new, was) = (Cursor::root(object), Cursor::root(old));
        unchanged_selector(&new.at("spec"), &was.at("spec"), errors);
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        warnings::of_workload(object, old, "spec.template", warnings::NAMES_PODS, |old| {
            self.raises_generation(object, old)
        })
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        !Cursor::root(object).same(&Cursor::root(old), "spec")
    }
}

/// The strategy of ReplicationControllers.
#[derive(Debug)]
pub(crate) struct ReplicationControllerStrategy;

impl Strategy for ReplicationControllerStrategy {
    fn facts(&self) -> &Facts {
        &Facts {
            generation: Generation::FromCreate,
            default_propagation: Propagation::Orphan,
            // The prefix of a generated name is not checked, because declarative validation only checks complete names.
            name: |name, is_prefix| match is_prefix {
                true => Vec::new(),
                false => names::dns1123_subdomain(name, false),
            },
            fields: FieldLabels::These {
                labels: &["status.replicas"],
                namespace: true,
                aliases: &[],
                refusal: "field label not supported: {}",
            },
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        let spec = ensure_object(object, "spec");
        default_value(spec, "replicas", 1);
        default_template_if_set(spec);
        let read = Cursor::root(spec);
        let labels = read.get("template.metadata.labels").cloned();
        let has_selector = !read.is_empty("selector");
        if let Some(labels) = labels.filter(|labels| labels.as_object().is_some_and(|it| !it.is_empty())) {
            if !has_selector {
                spec.insert("selector".into(), labels.clone());
            }
            if Cursor::root(object).is_empty("metadata.labels") {
                object.metadata_mut().insert("labels".into(), labels);
            }
        }
        default_status(object);
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".into(), json!({ "replicas": 0 }));
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let spec = object.at("spec");
        spec.at("minReadySeconds").check_not_negative(errors);
        if spec.is_empty("selector") {
            errors.required(spec.at("selector"), "");
        }
        if let Some(replicas) = spec.present("replicas") {
            replicas.check_not_negative(errors);
        } else {
            errors.required(spec.at("replicas"), "");
        }
        validate_own_template(&spec, errors);
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource == "status" {
            validate_status(&Cursor::root(object).at("status"), errors);
        } else {
            self.validate(object, errors);
        }
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        match old {
            // As in kube-apiserver, the warnings are about the stored template.
            Some(old) => warnings::of_workload(old, Some(object), "spec.template", "", |object| {
                self.raises_generation(object, old)
            }),
            None => warnings::of_workload(object, None, "spec.template", warnings::NAMES_PODS, |_| true),
        }
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        !Cursor::root(object).same(&Cursor::root(old), "spec")
    }

    fn field_value(&self, object: &Object, label: &str) -> String {
        Cursor::root(object).integer(label).unwrap_or(0).to_string()
    }
}

/// Checks the template of a ReplicationController, and that its labels match the selector, which is a map of labels.
fn validate_own_template(spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let template = Template::of(spec);
    if !template.template.is_set("") {
        errors.required(template.template, "");
        return;
    }
    let labels = template.template.at("metadata.labels");
    if spec
        .entries("selector")
        .any(|(key, value)| !labels.entry(key).same(&value, ""))
    {
        let shown = match labels.is_empty("") {
            true => Value::Null,
            false => labels.to_value(),
        };
        errors.invalid(labels, shown, "`selector` does not match template `labels`");
    }
    template.validate(errors);
    validate_always(&template, "ReplicationController", errors);
}

fn default_status(object: &mut Object) {
    let status = ensure_object(object, "status");
    default_value(status, "replicas", 0);
    default_conditions(status, &["lastTransitionTime"]);
}

fn validate_status(status: &Cursor<'_>, errors: &mut FieldErrors) {
    const COUNTS: [&str; 6] = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    validate_counts(status, &COUNTS, errors);
    validate_parts(
        status,
        &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        errors,
    );
    validate_available(status, "cannot be greater than readyReplicas", errors);
}
