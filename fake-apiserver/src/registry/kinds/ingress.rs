//! Ingresses.

use std::net::IpAddr;

use serde_json::{Map, Value};

use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{at, list, objects, restore, text};
use crate::registry::types::{names, net};

const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];

/// The strategy of Ingresses.
#[derive(Debug)]
pub(crate) struct Ingress;

impl Strategy for Ingress {
    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let path = FieldPath::new("spec");
        let backend = at(object, "spec.defaultBackend").and_then(Value::as_object);
        let rules = list(object, "spec.rules");
        if rules.is_empty() && backend.is_none() {
            let text = "either `defaultBackend` or `rules` must be specified";
            errors.invalid(path.clone(), Value::Null, text);
        }
        if let Some(backend) = backend {
            validate_backend(backend, &path.child("defaultBackend"), errors);
        }
        for (index, rule) in objects(object, "spec.rules") {
            validate_rule(rule, &path.child("rules").index(index), errors);
        }
        for (index, tls) in objects(object, "spec.tls") {
            let path = path.child("tls").index(index);
            for host in list(tls, "hosts").iter().filter_map(Value::as_str) {
                validate_host(host, &path.child("hosts"), errors);
            }
            let secret = text(tls, "secretName");
            for text in names::dns1123_subdomain(secret, false)
                .into_iter()
                .filter(|_| !secret.is_empty())
            {
                errors.invalid(path.child("secretName"), secret, text);
            }
        }
        if let Some(class) = at(object, "spec.ingressClassName").and_then(Value::as_str) {
            for text in names::dns1123_subdomain(class, false) {
                errors.invalid(path.child("ingressClassName"), class, text);
            }
        }
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, context: &Context<'_>) {
        if context.subresource == "status" {
            restore(object, old, "spec");
        }
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, context: &Context<'_>) {
        if context.subresource.is_empty() {
            self.validate(object, errors);
        }
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn validate_rule(rule: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let host = text(rule, "host");
    if !host.is_empty() {
        let path = path.child("host");
        if host.parse::<IpAddr>().is_ok() {
            errors.invalid(path.clone(), host, "must be a DNS name, not an IP address");
        }
        validate_host(host, &path, errors);
    }
    if at(rule, "http").is_none() {
        return;
    }
    let path = path.child("http.paths");
    if list(rule, "http.paths").is_empty() {
        errors.required(path.clone(), "");
    }
    for (index, http_path) in objects(rule, "http.paths") {
        validate_path(http_path, &path.index(index), errors);
    }
}

fn validate_host(host: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let texts = if host.contains('*') {
        names::wildcard_dns1123_subdomain(host)
    } else {
        names::dns1123_subdomain(host, false)
    };
    for text in texts {
        errors.invalid(path.clone(), host, text);
    }
}

fn validate_path(http_path: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let value = text(http_path, "path");
    let Some(path_type) = at(http_path, "pathType").and_then(Value::as_str) else {
        errors.required(path.child("pathType"), "pathType must be specified");
        return;
    };
    let at_path = || path.child("path");
    let is_exact = matches!(path_type, "Exact" | "Prefix");
    if !PATH_TYPES.contains(&path_type) {
        errors.not_supported(path.child("pathType"), path_type, &PATH_TYPES);
    } else if !value.starts_with('/') && (is_exact || !value.is_empty()) {
        errors.invalid(at_path(), value, "must be an absolute path");
    }
    if is_exact {
        for part in ["//", "/./", "/../", "%2f", "%2F"] {
            if value.contains(part) {
                errors.invalid(at_path(), value, format!("must not contain '{part}'"));
            }
        }
        for part in ["/..", "/."] {
            if value.ends_with(part) {
                errors.invalid(at_path(), value, format!("cannot end with '{part}'"));
            }
        }
    }
    let empty = Map::new();
    let backend = at(http_path, "backend").and_then(Value::as_object).unwrap_or(&empty);
    validate_backend(backend, &path.child("backend"), errors);
}

fn validate_backend(backend: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    match (at(backend, "service"), at(backend, "resource")) {
        (Some(_), Some(_)) => {
            errors.invalid(path.clone(), "", "cannot set both resource and service backends");
        }
        (None, Some(_)) => {
            for field in ["kind", "name"] {
                if text(backend, &format!("resource.{field}")).is_empty() {
                    errors.required(path.child("resource").child(field), "");
                }
            }
        }
        (Some(_), None) => validate_service(backend, path, errors),
        (None, None) => errors.invalid(path.clone(), "", "resource or service backend is required"),
    }
}

fn validate_service(backend: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let name = text(backend, "service.name");
    if name.is_empty() {
        errors.required(path.child("service.name"), "");
    } else {
        for text in names::dns1123_label(name, false) {
            errors.invalid(path.child("service.name"), name, text);
        }
    }
    let port_name = text(backend, "service.port.name");
    let number = at(backend, "service.port.number").and_then(Value::as_i64).unwrap_or(0);
    match (port_name.is_empty(), number) {
        (true, 0) => errors.required(path.clone(), "port name or number is required"),
        (true, number) => net::validate_port_number(number, &path.child("service.port.number"), errors),
        (false, 0) => {
            for text in names::port_name(port_name) {
                errors.invalid(path.child("service.port.name"), port_name, text);
            }
        }
        (false, _) => errors.invalid(path.clone(), "", "cannot set both port name & port number"),
    }
}
