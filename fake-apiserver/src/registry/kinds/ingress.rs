//! The strategy of Ingresses. Follows `ValidateIngressCreate`, `ValidateIngressUpdate` and
//! `ValidateIngressStatusUpdate` of `pkg/apis/networking/validation`.

use super::facts::{Facts, Generation};
use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::Value;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::copy_field;
use crate::registry::types::{names, net};

/// Former annotation for the class of an Ingress; replaced by the field `ingressClassName`.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];

/// The strategy of Ingresses.
#[derive(Debug)]
pub(crate) struct Ingress {
    /// The version of Kubernetes.
    pub(crate) version: KubernetesVersion,
}

impl Strategy for Ingress {
    fn facts(&self) -> &Facts {
        &Facts {
            generation: Generation::FromCreate,
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let object = Cursor::root(object);
        validate_spec(self.version, &object.at("spec"), errors);
        let class = object.at("spec.ingressClassName");
        if let Some(annotated) = annotated_class(&object).filter(|it| class.is_set("") && *it != class.as_text()) {
            let path = FieldPath::new("annotations").child(CLASS_ANNOTATION);
            errors.invalid(path, annotated, "must match `ingressClassName` when both are specified");
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            copy_field(old, object, "spec");
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        let new = Cursor::root(object);
        if context.subresource.is_empty() {
            return validate_spec(self.version, &new.at("spec"), errors);
        }
        let old = Cursor::root(old);
        let known: Vec<String> = old
            .items("status.loadBalancer.ingress")
            .map(|it| it.text("ip").to_owned())
            .collect();
        for ingress in new.items("status.loadBalancer.ingress") {
            validate_point(&ingress, &known, errors);
        }
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let object = Cursor::root(object);
        let is_annotated = annotated_class(&object).is_some() && !object.is_set("spec.ingressClassName");
        match is_annotated && old.is_none() {
            true => vec![format!(
                "annotation {CLASS_ANNOTATION:?} is deprecated, please use 'spec.ingressClassName' instead"
            )],
            false => Vec::new(),
        }
    }

    fn status_warnings(&self, object: &Object) -> Vec<String> {
        net::warnings_of_points(&Cursor::root(object).at("status.loadBalancer.ingress"))
    }
}

fn annotated_class<'a>(object: &Cursor<'a>) -> Option<&'a str> {
    object.map("metadata.annotations")?.get(CLASS_ANNOTATION)?.as_str()
}

/// Checks the spec of an Ingress (`ValidateIngressSpec`).
fn validate_spec(version: KubernetesVersion, spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let backend = spec.at("defaultBackend");
    if spec.is_empty("rules") && !backend.is_set("") {
        let text = "either `defaultBackend` or `rules` must be specified";
        errors.invalid(spec, Value::Null, text);
    }
    if backend.is_set("") {
        validate_backend(version, &backend, errors);
    }
    for rule in spec.items("rules") {
        validate_rule(version, &rule, errors);
    }
    for tls in spec.items("tls") {
        for host in tls.items("hosts") {
            validate_host(&host, errors);
        }
        tls.at("secretName").check_subdomain(errors);
    }
    let class = spec.at("ingressClassName");
    if class.is_set("") {
        class.check_texts(names::dns1123_subdomain(class.as_text(), false), errors);
    }
}

/// Checks an entry of `status.loadBalancer.ingress`. IP addresses in `known`, which the stored object already has, are
/// not checked.
fn validate_point(point: &Cursor<'_>, known: &[String], errors: &mut FieldErrors) {
    let (ip, host) = (point.at("ip"), point.at("hostname"));
    if !ip.as_text().is_empty() && !known.iter().any(|it| it == ip.as_text()) {
        net::validate_ip(&ip, errors);
    }
    host.check_subdomain(errors);
    check_no_ip(&host, errors);
}

fn check_no_ip(host: &Cursor<'_>, errors: &mut FieldErrors) {
    if net::parse_sloppy(host.as_text()).is_some() {
        errors.invalid(host, host.as_text(), "must be a DNS name, not an IP address");
    }
}

fn validate_rule(version: KubernetesVersion, rule: &Cursor<'_>, errors: &mut FieldErrors) {
    let host = rule.at("host");
    if !host.as_text().is_empty() {
        check_no_ip(&host, errors);
        validate_host(&host, errors);
    }
    if !rule.is_set("http") {
        return;
    }
    let paths = rule.at("http.paths");
    if paths.is_empty("") {
        errors.required(paths, "");
    }
    for path in paths.items("") {
        validate_path(version, &path, errors);
    }
}

fn validate_host(host: &Cursor<'_>, errors: &mut FieldErrors) {
    let text = host.as_text();
    let texts = match text.contains('*') {
        true => names::wildcard_dns1123_subdomain(text),
        false => names::dns1123_subdomain(text, false),
    };
    host.check_texts(texts, errors);
}

/// Checks an HTTP path (`validateHTTPIngressPath`).
fn validate_path(version: KubernetesVersion, http_path: &Cursor<'_>, errors: &mut FieldErrors) {
    let (path, kind) = (http_path.at("path"), http_path.at("pathType"));
    if !kind.is_set("") {
        errors.required(kind, "pathType must be specified");
        return;
    }
    let text = path.as_text();
    let is_exact = matches!(kind.as_text(), "Exact" | "Prefix");
    kind.check_one_of(&PATH_TYPES, errors);
    let is_known = PATH_TYPES.contains(&kind.as_text());
    if is_known && !text.starts_with('/') && (is_exact || !text.is_empty()) {
        errors.invalid(path, text, "must be an absolute path");
    }
    if is_exact {
        for part in ["//", "/./", "/../", "%2f", "%2F"] {
            if text.contains(part) {
                errors.invalid(path, text, format!("must not contain '{part}'"));
            }
        }
        for part in ["/..", "/."] {
            if text.ends_with(part) {
                errors.invalid(path, text, format!("cannot end with '{part}'"));
            }
        }
    }
    validate_backend(version, &http_path.at("backend"), errors);
}

/// Checks a backend (`validateIngressBackend`).
fn validate_backend(version: KubernetesVersion, backend: &Cursor<'_>, errors: &mut FieldErrors) {
    match (backend.is_set("service"), backend.is_set("resource")) {
        (true, true) => errors.invalid(backend, "", "cannot set both resource and service backends"),
        (false, true) => validate_reference(&backend.at("resource"), errors),
        (true, false) => validate_service(version, backend, errors),
        (false, false) => errors.invalid(backend, "", "resource or service backend is required"),
    }
}

/// Checks a reference to an object of any kind (`validateIngressTypedLocalObjectReference`).
pub(super) fn validate_reference(reference: &Cursor<'_>, errors: &mut FieldErrors) {
    let group = reference.at("apiGroup");
    if group.is_set("") {
        group.check_texts(names::dns1123_subdomain(group.as_text(), false), errors);
    }
    for field in ["kind", "name"] {
        let value = reference.at(field);
        if value.check_required(errors) {
            value.check_texts(names::path_segment(value.as_text(), false), errors);
        }
    }
}

fn validate_service(version: KubernetesVersion, backend: &Cursor<'_>, errors: &mut FieldErrors) {
    let name = backend.at("service.name");
    if name.check_required(errors) {
        let is_label = match version.has_relaxed_service_names() {
            true => names::dns1123_label,
            false => names::dns1035_label,
        };
        name.check_texts(is_label(name.as_text(), false), errors);
    }
    let (port_name, number) = (backend.at("service.port.name"), backend.at("service.port.number"));
    match (port_name.as_text(), number.integer("").unwrap_or(0)) {
        ("", 0) => errors.required(backend, "port name or number is required"),
        ("", _) => number.check_port_number(errors),
        (text, 0) => port_name.check_texts(names::port_name(text), errors),
        (_, _) => errors.invalid(backend, "", "cannot set both port name & port number"),
    }
}
