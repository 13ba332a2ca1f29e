//! The strategy of NetworkPolicies. Follows `ValidateNetworkPolicy` and `ValidateNetworkPolicyUpdate` of
//! `pkg/apis/networking/validation`.

use super::facts::{Facts, Generation};
use super::strategy::{Context, Strategy};
use crate::api::field::FieldErrors;
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{default_value, ensure_object, items_mut};
use crate::registry::types::{labels, names, net};

/// The directions of traffic: the field that contains the rules, and the field of a rule that contains its peers.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

/// The strategy of NetworkPolicies.
#[derive(Debug)]
pub(crate) struct NetworkPolicy;

impl Strategy for NetworkPolicy {
    fn facts(&self) -> &Facts {
        &Facts {
            generation: Generation::FromCreate,
            exact: &["spec"],
            ..Facts::DEFAULT
        }
    }

    fn default(&self, object: &mut Object) {
        let spec = ensure_object(object, "spec");
        for (direction, _) in DIRECTIONS {
            for port in items_mut(spec, direction).flat_map(|rule| items_mut(rule, "ports")) {
                default_value(port, "protocol", "TCP");
            }
        }
        let read = Cursor::root(spec);
        if read.is_empty("policyTypes") {
            let types = if read.is_empty("egress") {
                json!(["Ingress"])
            } else {
                json!(["Ingress", "Egress"])
            };
            spec.insert("policyTypes".into(), types);
        }
    }

    fn validate(&self, object: &Object, errors: &mut FieldErrors) {
        validate_spec(&Cursor::root(object).at("spec"), &[], errors);
    }

    fn validate_update(&self, object: &Object, old: &Object, errors: &mut FieldErrors, _context: &Context<'_>) {
        // IP ranges of the stored object are accepted anywhere in the new object.
        let mut kept = Vec::new();
        for_each_block(&Cursor::root(old).at("spec"), |block| {
            kept.extend(block.get("cidr").cloned());
            kept.extend(block.list("except").iter().cloned());
        });
        validate_spec(&Cursor::root(object).at("spec"), &kept, errors);
    }

    fn warnings(&self, object: &Object, _old: Option<&Object>) -> Vec<String> {
        let mut warnings = Vec::new();
        for_each_block(&Cursor::root(object).at("spec"), |block| {
            let cidr = block.at("cidr");
            warnings.extend(net::warn_of_cidr(&cidr.path(), cidr.as_text()));
            for except in block.items("except") {
                warnings.extend(net::warn_of_cidr(&except.path(), except.as_text()));
            }
        });
        warnings
    }
}

fn for_each_block(spec: &Cursor<'_>, mut each: impl FnMut(&Cursor<'_>)) {
    for (direction, peers) in DIRECTIONS {
        for rule in spec.items(direction) {
            for peer in rule.items(peers).filter(|it| it.is_set("ipBlock")) {
                each(&peer.at("ipBlock"));
            }
        }
    }
}

/// Checks the spec of a policy (`ValidateNetworkPolicySpec`). IP ranges in `kept` are accepted unchanged.
fn validate_spec(spec: &Cursor<'_>, kept: &[Value], errors: &mut FieldErrors) {
    labels::validate_selector(&spec.at("podSelector"), errors);
    for (direction, peers) in DIRECTIONS {
        for rule in spec.items(direction) {
            for port in rule.items("ports") {
                validate_port(&port, errors);
            }
            for peer in rule.items(peers) {
                validate_peer(&peer, kept, errors);
            }
        }
    }
    let types = spec.at("policyTypes");
    if types.list("").len() > 2 {
        errors.invalid(types, types.to_value(), "may not specify more than two policyTypes");
        return;
    }
    for policy_type in types.items("") {
        policy_type.check_one_of(&["Ingress", "Egress"], errors);
    }
}

/// Checks a port of a rule (`ValidateNetworkPolicyPort`).
fn validate_port(port: &Cursor<'_>, errors: &mut FieldErrors) {
    port.at("protocol").check_one_of(&["TCP", "UDP", "SCTP"], errors);
    let (path, end_path) = (port.at("port"), port.at("endPort"));
    let end = end_path.integer("");
    match path.get("") {
        Some(Value::String(name)) => {
            if let Some(end) = end {
                errors.invalid(end_path, end, "may not be specified when `port` is non-numeric");
            }
            path.check_texts(names::port_name(name), errors);
        }
        Some(_) => {
            path.check_port_number(errors);
            let first = path.integer("").unwrap_or(0);
            if end.is_some_and(|end| end < first) {
                errors.invalid(end_path, first, "must be greater than or equal to `port`");
            }
            if end.is_some() {
                end_path.check_port_number(errors);
            }
        }
        None => {
            if let Some(end) = end {
                errors.invalid(end_path, end, "may not be specified when `port` is not specified");
            }
        }
    }
}

/// Checks a peer of a rule (`ValidateNetworkPolicyPeer`).
fn validate_peer(peer: &Cursor<'_>, kept: &[Value], errors: &mut FieldErrors) {
    let mut selectors = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = peer.present(field) {
            selectors += 1;
            labels::validate_selector(&selector, errors);
        }
    }
    if peer.is_set("ipBlock") {
        validate_block(&peer.at("ipBlock"), kept, errors);
        if selectors > 0 {
            errors.forbidden(peer, "may not specify both ipBlock and another peer");
        }
    } else if selectors == 0 {
        errors.required(peer, "must specify a peer");
    }
}

/// Checks an IP block (`ValidateIPBlock`).
fn validate_block(block: &Cursor<'_>, kept: &[Value], errors: &mut FieldErrors) {
    let cidr = block.at("cidr");
    if !cidr.check_required(errors) {
        return;
    }
    cidr.check_legacy_cidr(kept, errors);
    let Some((whole, length)) = net::parse_sloppy_cidr(cidr.as_text()) else {
        return;
    };
    for except in block.items("except") {
        except.check_legacy_cidr(kept, errors);
        let Some((part, part_length)) = net::parse_sloppy_cidr(except.as_text()) else {
            continue;
        };
        let is_inside = whole.is_ipv4() == part.is_ipv4()
            && part_length > length
            && net::masked(part, length) == net::masked(whole, length);
        if !is_inside {
            errors.invalid(except, except.as_text(), "must be a strict subset of `cidr`");
        }
    }
}
