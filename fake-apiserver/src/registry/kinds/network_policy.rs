//! NetworkPolicies.

use serde_json::{Map, Value, json};

use super::strategy::{Context, Strategy};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::access::{
    at, default_to, ensure_object, is_empty, list, number, objects, objects_mut, text,
};
use crate::registry::types::{labels, names, net};

/// The directions of traffic: the list of rules, and what a rule calls its peers.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

/// The strategy of NetworkPolicies.
#[derive(Debug)]
pub(crate) struct NetworkPolicy;

impl Strategy for NetworkPolicy {
    fn default(&self, object: &mut Object) {
        let spec = ensure_object(object, "spec");
        for (direction, _) in DIRECTIONS {
            for rule in objects_mut(spec, direction) {
                for port in objects_mut(rule, "ports") {
                    default_to(port, "protocol", "TCP");
                }
            }
        }
        if is_empty(spec, "policyTypes") {
            let types = if is_empty(spec, "egress") {
                json!(["Ingress"])
            } else {
                json!(["Ingress", "Egress"])
            };
            spec.insert("policyTypes".into(), types);
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        let path = FieldPath::new("spec");
        labels::validate_selector(at(object, "spec.podSelector"), &path.child("podSelector"), errors);
        for (direction, peers) in DIRECTIONS {
            for (index, rule) in objects(object, &format!("spec.{direction}")) {
                let path = path.child(direction).index(index);
                for (index, port) in objects(rule, "ports") {
                    validate_port(port, &path.child("ports").index(index), errors);
                }
                for (index, peer) in objects(rule, peers) {
                    validate_peer(peer, &path.child(peers).index(index), errors);
                }
            }
        }
        let types = list(object, "spec.policyTypes");
        if types.len() > 2 {
            let text = "may not specify more than two policyTypes";
            errors.invalid(path.child("policyTypes"), types, text);
            return;
        }
        for policy_type in types.iter().filter_map(Value::as_str) {
            if !matches!(policy_type, "Egress" | "Ingress") {
                errors.not_supported(path.child("policyTypes"), policy_type, &["Egress", "Ingress"]);
            }
        }
    }

    fn validate_update(&self, object: &Object, _old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        self.validate(object, errors);
    }

    fn has_generation(&self) -> bool {
        true
    }
}

fn validate_port(port: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let protocol = text(port, "protocol");
    if !matches!(protocol, "" | "TCP" | "UDP" | "SCTP") {
        errors.not_supported(path.child("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
    }
    let end = number(port, "endPort");
    match at(port, "port") {
        Some(Value::String(name)) => {
            if let Some(end) = end {
                errors.invalid(
                    path.child("endPort"),
                    end,
                    "may not be specified when `port` is non-numeric",
                );
            }
            for text in names::port_name(name) {
                errors.invalid(path.child("port"), name.as_str(), text);
            }
        }
        Some(value) => {
            let first = value.as_i64().unwrap_or(0);
            net::validate_port_number(first, &path.child("port"), errors);
            if let Some(end) = end {
                if end < first {
                    errors.invalid(path.child("endPort"), first, "must be greater than or equal to `port`");
                }
                net::validate_port_number(end, &path.child("endPort"), errors);
            }
        }
        None => {
            if let Some(end) = end {
                errors.invalid(
                    path.child("endPort"),
                    end,
                    "may not be specified when `port` is not specified",
                );
            }
        }
    }
}

fn validate_peer(peer: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let mut selectors = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = at(peer, field) {
            selectors += 1;
            labels::validate_selector(Some(selector), &path.child(field), errors);
        }
    }
    let block = at(peer, "ipBlock").and_then(Value::as_object);
    if let Some(block) = block {
        validate_block(block, &path.child("ipBlock"), errors);
        if selectors > 0 {
            errors.forbidden(path.clone(), "may not specify both ipBlock and another peer");
        }
    } else if selectors == 0 {
        errors.required(path.clone(), "must specify a peer");
    }
}

fn validate_block(block: &Map<String, Value>, path: &FieldPath, errors: &mut FieldErrors) {
    let cidr = text(block, "cidr");
    if cidr.is_empty() {
        errors.required(path.child("cidr"), "");
        return;
    }
    let whole = net::validate_cidr(cidr, &path.child("cidr"), errors);
    for (index, except) in list(block, "except").iter().enumerate() {
        let (except, path) = (except.as_str().unwrap_or_default(), path.child("except").index(index));
        let part = net::validate_cidr(except, &path, errors);
        if let (Some((whole, length)), Some((part, part_length))) = (whole, part) {
            let is_inside =
                whole.is_ipv4() == part.is_ipv4() && part_length > length && net::masked(part, length) == whole;
            if !is_inside {
                errors.invalid(path, except, "must be a strict subset of `cidr`");
            }
        }
    }
}
