//! Validation of a Pod's status.

use std::collections::{BTreeMap, BTreeSet};

use super::annotations;
use super::status_containers::validate_container_statuses;
use crate::api::field::{FieldError, FieldErrorKind, FieldErrors};
use crate::api::json::Value;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names;
use crate::registry::types::net::parse_sloppy;

/// Condition types of Kubernetes that do not need to be qualified names.
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];

/// Checks a write of `/status`.
pub(super) fn validate_status(pod: &Object, old: &Object, errors: &mut FieldErrors) {
    let (pod, old) = (Cursor::root(pod), Cursor::root(old));
    annotations::validate_changes(&pod, &old, errors);
    let (status, old_status, spec) = (pod.at("status"), old.at("status"), old.at("spec"));
    for condition in status.items("conditions") {
        validate_condition(&condition, errors);
    }
    validate_nomination(&status.at("nominatedNodeName"), &old_status, &spec, errors);
    validate_generation(&status.at("observedGeneration"), errors);
    status
        .at("qosClass")
        .check_text_unchanged(&old_status.at("qosClass"), errors);
    for (field, containers) in [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", ""),
    ] {
        validate_transitions(&status.at(field), &old_status.at(field), &spec, containers, errors);
    }
    validate_claim_statuses(&status, &spec, errors);
    validate_extended_claim(&status.at("extendedResourceClaimStatus"), &pod.at("spec"), errors);
    validate_addresses(&status.at("podIPs"), &old_status.at("podIPs"), errors);
    let addresses = status.at("hostIPs");
    for first in addresses.items("").take(1) {
        let address = first.at("ip");
        if status.text("hostIP") != address.as_text() {
            errors.invalid(address, address.as_text(), "must be equal to `hostIP`");
        }
        validate_addresses(&addresses, &old_status.at("hostIPs"), errors);
    }
    validate_container_statuses(&status, &spec, errors);
}

fn validate_condition(condition: &Cursor<'_>, errors: &mut FieldErrors) {
    validate_generation(&condition.at("observedGeneration"), errors);
    let kind = condition.text("type");
    if !SYSTEM_CONDITIONS.contains(&kind) {
        condition.at("Type").refuse(kind, names::qualified_name(kind), errors);
    }
}

fn validate_generation(generation: &Cursor<'_>, errors: &mut FieldErrors) {
    if let Some(number) = generation.integer("").filter(|it| *it < 0) {
        errors.invalid(generation, number, "must be a non-negative integer");
    }
}

fn validate_nomination(node: &Cursor<'_>, old_status: &Cursor<'_>, spec: &Cursor<'_>, errors: &mut FieldErrors) {
    if node.is_empty("") || node.as_text() == old_status.text("nominatedNodeName") {
        return;
    }
    node.check_subdomain(errors);
    if !spec.is_empty("nodeName") {
        errors.forbidden(node, "may not be set on pods that are already bound to a node");
    }
}

/// Checks the claim for extended resources in a status (`validatePodExtendedResourceClaimStatus`).
fn validate_extended_claim(claim: &Cursor<'_>, spec: &Cursor<'_>, errors: &mut FieldErrors) {
    if claim.is_empty("") {
        return;
    }
    let container = |name: &str| {
        let mut all = ["containers", "initContainers"]
            .into_iter()
            .flat_map(|list| spec.items(list));
        all.find(|it| it.text("name") == name)
    };
    let mappings = claim.at("requestMappings");
    if mappings.is_empty("") {
        errors.required(mappings, "at least one request mapping is required");
    }
    let mut seen: BTreeSet<[&str; 3]> = BTreeSet::new();
    for mapping in mappings.items("") {
        let fields = ["containerName", "resourceName", "requestName"];
        let [name, resource, request] = fields.map(|field| mapping.text(field));
        match container(name) {
            Some(container) => {
                let requests = container.at("resources.requests");
                if !requests.entry(resource).is_set("") {
                    let detail = "must match the extended resource name of an entry in \
                                  spec.initContainers.resources.requests or spec.containers.resources.requests";
                    errors.invalid(mapping.at("resourceName"), resource, detail);
                }
            }
            None => {
                let detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                errors.invalid(mapping.at("containerName"), name, detail);
            }
        }
        claim
            .at("requestName")
            .refuse(request, names::dns1123_label(request, false), errors);
        if seen.contains(&[name, resource, request]) {
            for field in fields {
                errors.duplicate(mapping.at(field), mapping.text(field));
            }
        }
        seen.insert([name, resource, request]);
    }
    let name = claim.at("resourceClaimName");
    if name.check_required(errors) {
        name.check_subdomain(errors);
    }
}

/// Checks that a terminated container is only restarted if its restart policy or a restart rule permits it.
fn validate_transitions(
    statuses: &Cursor<'_>,
    old_statuses: &Cursor<'_>,
    spec: &Cursor<'_>,
    containers: &str,
    errors: &mut FieldErrors,
) {
    if !containers.is_empty() && all_could_restart(spec) {
        return;
    }
    let running = statuses.items("").filter(|it| !it.is_set("state.terminated"));
    let running: BTreeSet<&str> = running.map(|it| it.text("name")).collect();
    let mut known = BTreeMap::new();
    if !containers.is_empty() {
        for container in spec.items(containers) {
            known.entry(container.text("name")).or_insert(container);
        }
    }
    for (index, old) in old_statuses.items("").enumerate() {
        if !old.is_set("state.terminated") {
            continue;
        }
        let name = old.text("name");
        if !running.contains(name) {
            continue;
        }
        let code = old.integer("state.terminated.exitCode").unwrap_or(0);
        if !known.get(name).is_some_and(|container| restarts(container, spec, code)) {
            let detail = "may not be transitioned to non-terminated state";
            errors.forbidden(statuses.path().index(index).child("state"), detail);
        }
    }
}

/// Returns `true` if a container has a rule that restarts all containers.
fn all_could_restart(spec: &Cursor<'_>) -> bool {
    let mut containers = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec.items(list));
    containers.any(|container| {
        let mut rules = container.items("restartPolicyRules");
        rules.any(|rule| rule.text("action") == "RestartAllContainers")
    })
}

fn restarts(container: &Cursor<'_>, spec: &Cursor<'_>, code: i64) -> bool {
    for rule in container.items("restartPolicyRules") {
        let listed = rule
            .list("exitCodes.values")
            .iter()
            .any(|value| value.as_i64() == Some(code));
        let applies = match rule.text("exitCodes.operator") {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        };
        if applies && rule.text("action") == "Restart" {
            return true;
        }
    }
    let policy = match container.text("restartPolicy") {
        "" => spec.text("restartPolicy"),
        policy => policy,
    };
    match policy {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    }
}

fn validate_claim_statuses(status: &Cursor<'_>, spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for claim in status.items("resourceClaimStatuses") {
        let (at, name) = (claim.at("name"), claim.text("name"));
        if !spec.items("resourceClaims").any(|claim| claim.text("name") == name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(at, name, detail);
        }
        if seen.contains(&name) {
            errors.duplicate(at, name);
        }
        seen.insert(name);
        if let Some(name) = claim.present("resourceClaimName") {
            name.check_name(|it| names::dns1123_subdomain(it, false), errors);
        }
    }
}

/// Checks a list of addresses with at most one for each IP family (`validatePodIPs`, `validateHostIPs`).
fn validate_addresses(addresses: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
    let kept: Vec<Value> = old.maps("").filter_map(|it| it.get("ip").cloned()).collect();
    for entry in addresses.items("") {
        // As in kube-apiserver, the error path lacks the field.
        entry.in_other(entry.get("ip")).check_legacy_ip(&kept, errors);
    }
    let parsed: Vec<_> = addresses.items("").map(|it| parse_sloppy(it.text("ip"))).collect();
    if parsed.len() < 2 {
        return;
    }
    let wrong = parsed.iter().position(Option::is_none);
    if let Some(index) = wrong {
        let address = addresses.items("").nth(index).map_or("", |it| it.text("ip"));
        errors.push(FieldError {
            path: addresses.path(),
            kind: FieldErrorKind::Internal,
            value: None,
            detail: format!("failed to check for dual stack with error:invalid IP[{index}]: {address}"),
        });
    }
    let of_v4 = parsed.iter().flatten().filter(|it| it.to_canonical().is_ipv4()).count();
    if wrong.is_some() || parsed.len() > 2 || of_v4 != 1 {
        let detail = "may specify no more than one IP for each IP family";
        let shown = addresses.get("").map_or(Value::Null, super::print::go_names);
        errors.invalid(addresses, shown, detail);
    }
}
