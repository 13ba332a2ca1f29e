//! The strategy of IngressClasses. Follows `ValidateIngressClass` and `ValidateIngressClassUpdate` of
//! `pkg/apis/networking/validation`.

use super::facts::{Facts, Generation};
use super::ingress::validate_reference;
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_value, object_mut};
use crate::registry::types::names;

const CONTROLLER_MAX: usize = 250;

/// The strategy of IngressClasses.
#[derive(Debug)]
pub(crate) struct IngressClass;

impl Strategy for IngressClass {
    fn facts(&self) -> &Facts {
        &Facts {
            generation: Generation::FromCreate,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        if let Some(parameters) = object_mut(object, "spec.parameters") {
            default_value(parameters, "scope", "Cluster");
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        let (controller, parameters) = (object.at("spec.controller"), object.at("spec.parameters"));
        if controller.as_text().len() > CONTROLLER_MAX {
            errors.too_long(controller, CONTROLLER_MAX);
        }
        validate_domain_path(&controller, errors);
        if parameters.is_set("") {
            validate_parameters(&parameters, errors);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        let old = Cursor::root(old);
        Cursor::root(object)
            .at("spec.controller")
            .check_text_unchanged(&old.at("spec.controller"), errors);
        self.validate(object, errors);
    }
}

/// Checks the reference to the parameters of a class (`validateIngressClassParametersReference`).
fn validate_parameters(parameters: &Cursor<'_>, errors: &mut FieldErrors) {
    validate_reference(parameters, errors);
    let (scope, namespace) = (parameters.at("scope"), parameters.at("namespace"));
    if !scope.is_set("") {
        errors.required(scope, "");
    }
    scope.check_one_of(&["Cluster", "Namespace"], errors);
    match (scope.as_text(), namespace.is_set("")) {
        ("Namespace", false) => errors.required(namespace, "`parameters.scope` is set to 'Namespace'"),
        ("Namespace", true) => {
            namespace.check_texts(names::dns1123_label(namespace.as_text(), false), errors);
        }
        ("Cluster", true) => errors.forbidden(namespace, "`parameters.scope` is set to 'Cluster'"),
        _ => {}
    }
}

/// Checks a path with a domain as its prefix, such as `acme.io/foo` (`IsDomainPrefixedPath`).
fn validate_domain_path(value: &Cursor<'_>, errors: &mut FieldErrors) {
    if !value.check_required(errors) {
        return;
    }
    for (part, text) in names::domain_prefixed_path(value.as_text()) {
        errors.invalid(value, part, text);
    }
}
