//! Endpoints, the deprecated kind.

use serde_json::{Map, Value};

use super::access::{default_to, list, number, objects, objects_mut, text};
use super::service::validate_protocol;
use super::{names, net};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::strategy::{Context, Strategy};

/// The strategy of Endpoints.
#[derive(Debug)]
pub(crate) struct Endpoints;

impl Strategy for Endpoints {
    fn default(&self, object: &mut Object) {
        for subset in objects_mut(object, "subsets") {
            for port in objects_mut(subset, "ports") {
                default_to(port, "protocol", "TCP");
            }
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        for (index, subset) in objects(object, "subsets") {
            validate_subset(subset, &FieldPath::new("subsets").index(index), errors);
        }
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        if object.get("subsets") != old.get("subsets") {
            self.validate(object, errors);
        }
    }

    fn deprecation(&self) -> Option<&'static str> {
        Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }
}

fn validate_subset(subset: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    if list(subset, "addresses").is_empty() && list(subset, "notReadyAddresses").is_empty() {
        errors.required(path.clone(), "must specify `addresses` or `notReadyAddresses`");
    }
    for field in ["addresses", "notReadyAddresses"] {
        for (index, address) in objects(subset, field) {
            let path = path.child(field).index(index);
            let (ip, host) = (text(address, "ip"), text(address, "hostname"));
            if let Some(parsed) = net::validate_ip(ip, || path.child("ip"), errors) {
                net::validate_ordinary_ip(parsed, ip, &path.child("ip"), errors);
            }
            for text in names::dns1123_label(host, false)
                .into_iter()
                .filter(|_| !host.is_empty())
            {
                errors.invalid(path.child("hostname"), host, text);
            }
        }
    }
    let needs_name = list(subset, "ports").len() > 1;
    for (index, port) in objects(subset, "ports") {
        let path = path.child("ports").index(index);
        let name = text(port, "name");
        if needs_name && name.is_empty() {
            errors.required(path.child("name"), "");
        }
        for text in names::dns1123_label(name, false)
            .into_iter()
            .filter(|_| !name.is_empty())
        {
            errors.invalid(path.child("name"), name, text);
        }
        net::validate_port_number(number(port, "port").unwrap_or(0), &path.child("port"), errors);
        validate_protocol(text(port, "protocol"), &path, errors);
    }
}
