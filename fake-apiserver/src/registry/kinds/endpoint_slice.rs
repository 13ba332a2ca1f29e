//! The strategy of EndpointSlices. Follows `ValidateEndpointSlice` of `pkg/apis/discovery/validation`.

use std::collections::BTreeSet;

use super::facts::{Facts, Generation};
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::check::IMMUTABLE;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_value, items_mut};
use crate::registry::types::{labels, names, net};

const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const ENDPOINTS_MAX: usize = 1_000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const TOPOLOGY_MAX: usize = 16;
/// Maximum number of zones, and of nodes, in the hints of an endpoint.
const HINTS_MAX: usize = 8;

const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Controllers that do not get warnings about the addresses in their EndpointSlices.
const CONTROLLERS: [&str; 2] = [
    "endpointslice-controller.k8s.io",
    "endpointslicemirroring-controller.k8s.io",
];
const HOST_LABEL: &str = "kubernetes.io/hostname";

/// The strategy of EndpointSlices.
#[derive(Debug)]
pub(crate) struct EndpointSlice;

impl Strategy for EndpointSlice {
    fn facts(&self) -> &Facts {
        &Facts {
            generation: Generation::FromCreate,
            compares_dropped_fields: true,
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        for port in items_mut(object, "ports") {
            if port.get("name").is_none_or(Value::is_null) {
                port.insert("name".into(), json!(""));
            }
            default_value(port, "protocol", "TCP");
        }
    }

    fn prepare_for_create(&self, object: &mut Object, _context: &Context<'_>) {
        drop_topology(object, None);
    }

    fn prepare_for_update(&self, object: &mut Object, old: &Object, _context: &Context<'_>) {
        if object.get("endpoints") != old.get("endpoints") {
            drop_topology(object, Some(old));
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let slice = Cursor::root(object);
        validate_type_and_ports(&slice, errors);
        validate_endpoints(&slice, errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        let (slice, old) = (Cursor::root(object), Cursor::root(old));
        validate_type_and_ports(&slice, errors);
        if !slice.same(&old, "endpoints") {
            validate_endpoints(&slice, errors);
        }
        if slice.text("addressType") != old.text("addressType") {
            errors.invalid(slice.at("addressType"), slice.text("addressType"), IMMUTABLE);
        }
    }

    fn warnings(&self, object: &Object, old: Option<&Object>) -> Vec<String> {
        let slice = Cursor::root(object);
        let mut warnings = Vec::new();
        if old.is_none() && slice.text("addressType") == "FQDN" {
            warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        let manager = slice.map("metadata.labels").and_then(|it| it.get(MANAGED_BY)?.as_str());
        if manager.is_some_and(|it| CONTROLLERS.contains(&it)) {
            return warnings;
        }
        for endpoint in slice.items("endpoints") {
            let addresses = endpoint.items("addresses");
            warnings.extend(addresses.filter_map(|it| net::warn_of_ip(&it.path(), it.as_text())));
        }
        warnings
    }

    fn raises_generation(&self, object: &Object, old: &Object) -> bool {
        ["addressType", "endpoints", "ports"]
            .iter()
            .any(|field| object.get(field) != old.get(field))
            || Cursor::root(object).get("metadata.labels") != Cursor::root(old).get("metadata.labels")
    }
}

/// Removes `deprecatedTopology`, which cannot be set in this version (`dropTopologyOnV1`). If the stored object has the
/// same host name in its topology, the host name is moved to `nodeName` if that field is unset.
fn drop_topology(object: &mut Object, old: Option<&Object>) {
    let hosts: Vec<String> = old
        .map(|old| {
            let old = Cursor::root(old);
            let endpoints = old.items("endpoints");
            let host = |it: Cursor<'_>| Some(it.map("deprecatedTopology")?.get(HOST_LABEL)?.as_str()?.to_owned());
            endpoints.filter_map(host).collect()
        })
        .unwrap_or_default();
    for endpoint in items_mut(object, "endpoints") {
        let topology = endpoint.remove("deprecatedTopology");
        let host = topology.as_ref().and_then(|it| it.get(HOST_LABEL)?.as_str());
        if let Some(host) = host.filter(|it| hosts.iter().any(|known| known == it))
            && endpoint.get("nodeName").is_none_or(Value::is_null)
            && names::dns1123_subdomain(host, false).is_empty()
        {
            endpoint.insert("nodeName".into(), host.into());
        }
    }
}

fn validate_type_and_ports(slice: &Cursor<'_>, errors: &mut FieldErrors) {
    let kind = slice.at("addressType");
    if kind.check_required(errors) {
        kind.check_one_of(&ADDRESS_TYPES, errors);
    }
    validate_ports(slice, errors);
}

fn validate_endpoints(slice: &Cursor<'_>, errors: &mut FieldErrors) {
    let count = slice.list("endpoints").len();
    if count > ENDPOINTS_MAX {
        errors.too_many(slice.at("endpoints").path(), count, ENDPOINTS_MAX);
        return;
    }
    for endpoint in slice.items("endpoints") {
        validate_addresses(&endpoint, slice.text("addressType"), errors);
        for (field, rule) in [
            ("nodeName", names::dns1123_subdomain as fn(&str, bool) -> Vec<String>),
            ("hostname", names::dns1123_label),
        ] {
            if field == "hostname" {
                validate_topology(&endpoint, errors);
            }
            if endpoint.is_set(field) {
                let name = endpoint.at(field);
                name.check_texts(rule(name.as_text(), false), errors);
            }
        }
        if endpoint.is_set("hints") {
            validate_hints(&endpoint.at("hints"), errors);
        }
    }
}

fn validate_topology(endpoint: &Cursor<'_>, errors: &mut FieldErrors) {
    let topology = endpoint.at("deprecatedTopology");
    let count = topology.map("").map_or(0, Map::len);
    if count > TOPOLOGY_MAX {
        errors.too_many(topology.path(), count, TOPOLOGY_MAX);
    }
    labels::validate_labels(&topology, errors);
}

/// Checks the topology hints of an endpoint (`validateHints`). Stops at a list that is too long.
fn validate_hints(hints: &Cursor<'_>, errors: &mut FieldErrors) {
    for (field, rule) in [
        ("forZones", names::label_value as fn(&str) -> Vec<String>),
        ("forNodes", |name: &str| names::dns1123_subdomain(name, false)),
    ] {
        let all = hints.list(field);
        if all.len() > HINTS_MAX {
            errors.too_many(hints.at(field).path(), all.len(), HINTS_MAX);
            return;
        }
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for hint in hints.items(field) {
            let text = hint.text("name");
            let name = hint.at("name");
            if seen.contains(&text) {
                errors.duplicate(name.path(), text);
            }
            seen.insert(text);
            name.check_texts(rule(text), errors);
        }
    }
}

fn validate_addresses(endpoint: &Cursor<'_>, address_type: &str, errors: &mut FieldErrors) {
    let (count, path) = (endpoint.list("addresses").len(), endpoint.at("addresses"));
    if count == 0 {
        errors.required(path, "must contain at least 1 address");
    } else if count > ADDRESSES_MAX {
        errors.too_many(path.path(), count, ADDRESSES_MAX);
    }
    for address in endpoint.items("addresses") {
        let text = address.as_text();
        match address_type {
            "IPv4" | "IPv6" => {
                let problem = match address_type {
                    "IPv6" => net::wrong_in_ip(text),
                    _ => net::wrong_in_legacy_ip(text),
                };
                if let Some(problem) = problem {
                    errors.invalid(address, text, problem);
                    continue;
                }
                if net::parse_sloppy(text).is_some_and(|it| it.is_ipv4() != (address_type == "IPv4")) {
                    errors.invalid(path, text, format!("must be an {address_type} address"));
                }
                net::validate_endpoint_ip(&address, errors);
            }
            "FQDN" => validate_domain(&address, errors),
            _ => {}
        }
    }
}

/// Checks an address of the type FQDN (`IsFullyQualifiedDomainName`).
fn validate_domain(address: &Cursor<'_>, errors: &mut FieldErrors) {
    if !address.check_required(errors) {
        return;
    }
    let name = address.as_text().strip_suffix('.').unwrap_or(address.as_text());
    let problems = names::dns1123_subdomain(name, false);
    if !problems.is_empty() {
        errors.invalid(address, name, problems.join(","));
    } else if !name.contains('.') {
        let problem = "should be a domain with at least two segments separated by dots";
        errors.invalid(address, name, problem);
    } else {
        let labels = name.split('.').map(|label| (label, names::dns1123_label(label, false)));
        if let Some((label, problems)) = labels.into_iter().find(|(_, it)| !it.is_empty()) {
            errors.invalid(address, label, problems.join(","));
        }
    }
}

fn validate_ports(slice: &Cursor<'_>, errors: &mut FieldErrors) {
    let count = slice.list("ports").len();
    if count > PORTS_MAX {
        errors.too_many(slice.at("ports").path(), count, PORTS_MAX);
        return;
    }
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for port in slice.items("ports") {
        let name = port.text("name");
        port.at("name").check_label(errors);
        if seen.contains(&name) {
            errors.duplicate(port.at("name").path(), name);
        }
        seen.insert(name);
        if port.is_set("protocol") {
            port.at("protocol").check_one_of(&["SCTP", "TCP", "UDP"], errors);
        } else {
            errors.required(port.at("protocol"), "");
        }
        if port.is_set("appProtocol") {
            labels::validate_key(&port.at("appProtocol"), errors);
        }
    }
}
