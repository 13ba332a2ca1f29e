//! The strategies of two kinds without a life of their own: PodTemplates and ControllerRevisions.

use serde_json::Value;

use super::pod::defaults::default_template;
use super::pod::validation::Template;
use super::pod::warnings;
use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::check::{IMMUTABLE, not_negative};
use crate::registry::types::view::{default_number, same, value_of};

/// PodTemplates.
#[derive(Debug)]
pub(crate) struct PodTemplateStrategy;

impl Strategy for PodTemplateStrategy {
    fn default(&self, object: &mut Object) {
        default_template(object);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        Template::of(object).validate(&FieldPath::new("template"), errors);
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        warnings::of_workload(object, old, "template", "", |old| self.raises_generation(object, old))
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        !same(object, old, "template")
    }
}

/// ControllerRevisions.
#[derive(Debug)]
pub(crate) struct ControllerRevisionStrategy;

impl Strategy for ControllerRevisionStrategy {
    fn default(&self, object: &mut Object) {
        default_number(object, "revision", 0);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        not_negative(object, "revision", &FieldPath::root(), errors);
        match object.get("data") {
            None | Some(Value::Null) => errors.required(FieldPath::new("data"), "data is mandatory"),
            Some(Value::Object(_)) => {}
            Some(_) => errors.required(FieldPath::new("data"), "data must be a valid JSON object"),
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        not_negative(object, "revision", &FieldPath::root(), errors);
        if !same(object, old, "data") {
            errors.invalid(FieldPath::new("data"), value_of(object, "data"), IMMUTABLE);
        }
    }
}
