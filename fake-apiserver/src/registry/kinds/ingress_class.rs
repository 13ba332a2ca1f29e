//! IngressClasses.

use serde_json::Value;

use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, default_to, object_mut, text};
use crate::registry::types::names;

const CONTROLLER_MAX: usize = 250;

/// The strategy of IngressClasses.
#[derive(Debug)]
pub(crate) struct IngressClass;

impl Strategy for IngressClass {
    fn default(&self, object: &mut Object) {
        if let Some(parameters) = object_mut(object, "spec.parameters") {
            default_to(parameters, "scope", "Cluster");
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let controller = text(object, "spec.controller");
        let path = FieldPath::new("spec.controller");
        if controller.len() > CONTROLLER_MAX {
            errors.too_long(path.clone(), CONTROLLER_MAX);
        }
        validate_domain_path(controller, &path, errors);
        if at(object, "spec.parameters").is_some() {
            validate_parameters(object, errors);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        let controller = text(object, "spec.controller");
        if controller != text(old, "spec.controller") {
            errors.invalid(FieldPath::new("spec.controller"), controller, "field is immutable");
        }
        self.validate(object, errors);
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn validate_parameters(object: &Object, errors: &mut FieldErrors) {
    let path = |field| FieldPath::new("spec.parameters").child(field);
    let value = |field: &str| at(object, &format!("spec.parameters.{field}")).and_then(Value::as_str);
    if let Some(group) = value("apiGroup") {
        for text in names::dns1123_subdomain(group, false) {
            errors.invalid(path("apiGroup"), group, text);
        }
    }
    for field in ["kind", "name"] {
        let text = value(field).unwrap_or_default();
        if text.is_empty() {
            errors.required(path(field), "");
        }
        for problem in names::path_segment(text, false) {
            errors.invalid(path(field), text, problem);
        }
    }
    let namespace = value("namespace");
    match value("scope").unwrap_or_default() {
        "Namespace" if namespace.unwrap_or_default().is_empty() => {
            errors.required(path("namespace"), "`parameters.scope` is set to 'Namespace'");
        }
        "Cluster" if namespace.is_some() => {
            errors.forbidden(path("namespace"), "`parameters.scope` is set to 'Cluster'");
        }
        "Namespace" | "Cluster" => {}
        "" => errors.required(path("scope"), ""),
        other => errors.not_supported(path("scope"), other, &["Cluster", "Namespace"]),
    }
}

/// Checks a path below a domain, such as `acme.io/foo`.
fn validate_domain_path(value: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if value.is_empty() {
        errors.required(path.clone(), "");
        return;
    }
    let Some((host, rest)) = value
        .split_once('/')
        .filter(|(host, rest)| !host.is_empty() && !rest.is_empty())
    else {
        let text = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.invalid(path.clone(), value, text);
        return;
    };
    for text in names::dns1123_subdomain(host, false) {
        errors.invalid(path.clone(), host, text);
    }
    let is_path = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !rest.bytes().all(is_path) {
        let text = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        errors.invalid(path.clone(), rest, text);
    }
}
