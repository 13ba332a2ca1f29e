//! EndpointSlices.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::strategy::{Context, Strategy};
use crate::registry::types::access::{at, default_to, list, objects, objects_mut, text};
use crate::registry::types::{labels, names, net};

const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const ENDPOINTS_MAX: usize = 1_000;
const ADDRESSES_MAX: usize = 100;

/// The strategy of EndpointSlices.
#[derive(Debug)]
pub(crate) struct EndpointSlice;

impl Strategy for EndpointSlice {
    fn default(&self, object: &mut Object) {
        for port in objects_mut(object, "ports") {
            if port.get("name").is_none_or(Value::is_null) {
                port.insert("name".into(), json!(""));
            }
            default_to(port, "protocol", "TCP");
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let address_type = text(object, "addressType");
        if address_type.is_empty() {
            errors.required(FieldPath::new("addressType"), "");
        } else if !ADDRESS_TYPES.contains(&address_type) {
            errors.not_supported(FieldPath::new("addressType"), address_type, &ADDRESS_TYPES);
        }
        validate_content(object, errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        if object.get("addressType") != old.get("addressType") {
            let value = object.get("addressType").cloned().unwrap_or_default();
            errors.invalid(FieldPath::new("addressType"), value, "field is immutable");
        }
        validate_content(object, errors);
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        if text(object, "addressType") == "FQDN" {
            vec!["spec.addressType: FQDN endpoints are deprecated".to_owned()]
        } else {
            Vec::new()
        }
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        ["addressType", "endpoints", "ports"]
            .iter()
            .any(|field| object.get(*field) != old.get(*field))
            || at(object, "metadata.labels") != at(old, "metadata.labels")
    }
}

fn validate_content(object: &Object, errors: &mut FieldErrors) {
    validate_ports(object, errors);
    let address_type = text(object, "addressType");
    let endpoints = list(object, "endpoints");
    if endpoints.len() > ENDPOINTS_MAX {
        errors.too_many(FieldPath::new("endpoints"), endpoints.len(), ENDPOINTS_MAX);
        return;
    }
    for (index, endpoint) in objects(object, "endpoints") {
        let path = FieldPath::new("endpoints").index(index);
        validate_addresses(endpoint, address_type, &path.child("addresses"), errors);
        let host = text(endpoint, "hostname");
        for text in names::dns1123_label(host, false)
            .into_iter()
            .filter(|_| !host.is_empty())
        {
            errors.invalid(path.child("hostname"), host, text);
        }
        let node = text(endpoint, "nodeName");
        for text in names::dns1123_subdomain(node, false)
            .into_iter()
            .filter(|_| !node.is_empty())
        {
            errors.invalid(path.child("nodeName"), node, text);
        }
    }
}

fn validate_addresses(endpoint: &Map<String, Value>, address_type: &str, path: &FieldPath, errors: &mut FieldErrors) {
    let addresses = list(endpoint, "addresses");
    if addresses.is_empty() {
        errors.required(path.clone(), "must contain at least 1 address");
    } else if addresses.len() > ADDRESSES_MAX {
        errors.too_many(path.clone(), addresses.len(), ADDRESSES_MAX);
    }
    for (index, address) in addresses.iter().enumerate() {
        let (address, at) = (address.as_str().unwrap_or_default(), path.index(index));
        match address_type {
            "IPv4" | "IPv6" => {
                let Some(ip) = net::validate_ip(address, || at.clone(), errors) else {
                    continue;
                };
                if matches!(ip, IpAddr::V4(_)) != (address_type == "IPv4") {
                    errors.invalid(path.clone(), address, format!("must be an {address_type} address"));
                }
                net::validate_ordinary_ip(ip, address, &at, errors);
            }
            "FQDN" => {
                let texts = names::dns1123_subdomain(address.strip_suffix('.').unwrap_or(address), false);
                if !texts.is_empty() {
                    errors.invalid(at, address, texts.join(","));
                } else if !address.contains('.') {
                    let text = "should be a domain with at least two segments separated by dots";
                    errors.invalid(at, address, text);
                }
            }
            _ => {}
        }
    }
}

fn validate_ports(object: &Object, errors: &mut FieldErrors) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, port) in objects(object, "ports") {
        let path = FieldPath::new("ports").index(index);
        let name = text(port, "name");
        for text in names::dns1123_label(name, false)
            .into_iter()
            .filter(|_| !name.is_empty())
        {
            errors.invalid(path.child("name"), name, text);
        }
        if seen.contains(&name) {
            errors.duplicate(path.child("name"), name);
        }
        seen.push(name);
        super::service::validate_protocol(text(port, "protocol"), &path, errors);
        if let Some(protocol) = at(port, "appProtocol").and_then(Value::as_str) {
            labels::validate_key(protocol, &path.child("appProtocol"), errors);
        }
    }
}
