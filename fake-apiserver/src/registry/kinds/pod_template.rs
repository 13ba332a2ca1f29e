//! The strategies of PodTemplates and ControllerRevisions, which do not have a controller.

use super::facts::{Facts, Generation};
use super::pod::defaults::default_template;
use super::pod::validation::Template;
use super::pod::warnings;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::default_value;

/// The strategy of PodTemplates.
#[derive(Debug)]
pub(crate) struct PodTemplateStrategy;

impl Strategy for PodTemplateStrategy {
    fn facts(&self) -> &Facts {
        &Facts {
            returns_deleted_object: true,
            generation: Generation::FromCreate,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        default_template(object);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        Template::of(&Cursor::root(object)).validate(errors);
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        warnings::of_workload(object, old, "template", "", |old| self.raises_generation(object, old))
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        !Cursor::root(object).same(&Cursor::root(old), "template")
    }
}

/// The strategy of ControllerRevisions.
#[derive(Debug)]
pub(crate) struct ControllerRevisionStrategy;

impl Strategy for ControllerRevisionStrategy {
    fn default(&self, object: &mut Object) {
        default_value(object, "revision", 0);
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        object.at("revision").check_not_negative(errors);
        let data = object.at("data");
        if !data.is_set("") {
            errors.required(data, "data is mandatory");
        } else if data.map("").is_none() {
            errors.required(data, "data must be a valid JSON object");
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        let (object, old) = (Cursor::root(object), Cursor::root(old));
        object.at("revision").check_not_negative(errors);
        object.at("data").check_unchanged(&old.at("data"), errors);
    }
}
