//! The strategies of ReplicaSets and of their forerunners, ReplicationControllers.

use serde_json::{Value, json};

use super::pod::defaults::{default_template, default_template_if_set};
use super::pod::validation::Template;
use super::pod::warnings;
use super::strategy::{Context, FieldLabels, Propagation, Strategy};
use super::workload_rules::{
    default_conditions, parts, unchanged_selector, validate_always, validate_available, validate_counts,
    validate_parts, validate_selector, validate_template,
};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::check::not_negative;
use crate::registry::types::view::{
    JsonMap, default_number, integer, is_set, object_made, object_or_empty, same, value_of,
};

/// ReplicaSets.
#[derive(Debug)]
pub(crate) struct ReplicaSetStrategy;

impl Strategy for ReplicaSetStrategy {
    fn default(&self, object: &mut Object) {
        if let Some(spec) = object_made(object, "spec") {
            default_number(spec, "replicas", 1);
            default_template(spec);
        }
        default_status(object);
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".to_owned(), json!({ "replicas": 0 }));
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let (spec, path) = (object_or_empty(object, "spec"), FieldPath::new("spec"));
        not_negative(spec, "replicas", &path, errors);
        not_negative(spec, "minReadySeconds", &path, errors);
        validate_selector(spec, "deployment", &path, errors);
        validate_template(spec, "ReplicaSet", &path, errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource == "status" {
            validate_status(object_or_empty(object, "status"), errors);
            return;
        }
        self.validate(object, errors);
        unchanged_selector(parts(object).0, parts(old).0, &FieldPath::new("spec"), errors);
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
        !same(object, old, "spec")
    }
}

/// ReplicationControllers.
#[derive(Debug)]
pub(crate) struct ReplicationControllerStrategy;

impl Strategy for ReplicationControllerStrategy {
    fn default(&self, object: &mut Object) {
        let mut labels = None;
        if let Some(spec) = object_made(object, "spec") {
            default_number(spec, "replicas", 1);
            default_template_if_set(spec);
            let template = crate::registry::types::view::object_or_empty(spec, "template");
            let own = value_of(object_or_empty(template, "metadata"), "labels");
            if own.as_object().is_some_and(|labels| !labels.is_empty()) {
                if object_or_empty(spec, "selector").is_empty() {
                    spec.insert("selector".to_owned(), own.clone());
                }
                labels = Some(own);
            }
        }
        if let Some(labels) = labels
            && object_or_empty(object_or_empty(object, "metadata"), "labels").is_empty()
        {
            object.metadata_mut().insert("labels".to_owned(), labels);
        }
        default_status(object);
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        object.insert("status".to_owned(), json!({ "replicas": 0 }));
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let (spec, path) = (
            crate::registry::types::view::object_or_empty(object, "spec"),
            FieldPath::new("spec"),
        );
        not_negative(spec, "minReadySeconds", &path, errors);
        let selector = object_or_empty(spec, "selector");
        if selector.is_empty() {
            errors.required(path.child("selector"), "");
        }
        match integer(spec, "replicas") {
            None => errors.required(path.child("replicas"), ""),
            Some(_) => not_negative(spec, "replicas", &path, errors),
        }
        validate_own_template(spec, selector, &path, errors);
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource == "status" {
            validate_status(object_or_empty(object, "status"), errors);
        } else {
            self.validate(object, errors);
        }
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
        !same(object, old, "spec")
    }

    fn default_propagation(&self) -> Propagation {
        Propagation::Orphan
    }

    fn field_labels(&self) -> FieldLabels {
        FieldLabels::These {
            labels: &["status.replicas"],
            namespace: true,
            aliases: &[],
            refusal: "field label not supported: {}",
        }
    }

    fn field_values(&self, object: &Object) -> Vec<(&'static str, String)> {
        let replicas = integer(object_or_empty(object, "status"), "replicas").unwrap_or(0);
        vec![("status.replicas", replicas.to_string())]
    }
}

/// The selector of a ReplicationController is a plain map of labels.
fn validate_own_template(spec: &JsonMap, selector: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    if !is_set(spec, "template") {
        errors.required(path.child("template"), "");
        return;
    }
    let template = Template::of(spec);
    let labels = template.labels();
    if selector.iter().any(|(key, value)| labels.get(key) != Some(value)) {
        let shown = match labels.is_empty() {
            true => Value::Null,
            false => Value::Object(labels.clone()),
        };
        let detail = "`selector` does not match template `labels`";
        errors.invalid(path.child("template.metadata.labels"), shown, detail);
    }
    template.validate(&path.child("template"), errors);
    validate_always(&template, "ReplicationController", path, errors);
}

fn default_status(object: &mut Object) {
    if let Some(status) = object_made(object, "status") {
        default_number(status, "replicas", 0);
        default_conditions(status, &["lastTransitionTime"]);
    }
}

fn validate_status(status: &JsonMap, errors: &mut FieldErrors) {
    const COUNTS: [&str; 6] = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    let path = FieldPath::new("status");
    validate_counts(status, &COUNTS, &path, errors);
    validate_parts(
        status,
        &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        &path,
        errors,
    );
    validate_available(status, "cannot be greater than readyReplicas", &path, errors);
}
