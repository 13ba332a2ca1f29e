//! The check of a Pod's status, which kubelets and controllers write.

use serde_json::Value;

use super::annotations;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::check::{IMMUTABLE, wrong};
use crate::registry::types::names;
use crate::registry::types::net::validate_ip;
use crate::registry::types::view::{JsonMap, integer, is_set, items, object, object_or_empty, text};

/// Conditions of the system, whose names are no qualified names' business.
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];

/// Checks a write of `/status`.
pub(super) fn validate_status(pod: &Object, old: &Object, errors: &mut FieldErrors) {
    let annotations_of = |pod| object_or_empty(object_or_empty(pod, "metadata"), "annotations");
    let meta_path = FieldPath::new("metadata.annotations");
    annotations::validate_changes(annotations_of(pod), annotations_of(old), &meta_path, errors);
    let path = FieldPath::new("status");
    let (status, old_status) = (object_or_empty(pod, "status"), object_or_empty(old, "status"));
    let spec = object_or_empty(old, "spec");
    validate_conditions(status, &path, errors);
    validate_nomination(status, old_status, spec, &path, errors);
    validate_not_negative(status, &path, errors);
    let (quality, was) = (text(status, "qosClass"), text(old_status, "qosClass"));
    if quality != was {
        errors.invalid(path.child("qosClass"), quality, IMMUTABLE);
    }
    for (field, containers) in [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", ""),
    ] {
        validate_transitions(
            status,
            old_status,
            field,
            (spec, containers),
            &path.child(field),
            errors,
        );
    }
    validate_claim_statuses(status, spec, &path, errors);
    validate_extended_claim(pod, &path, errors);
    validate_addresses(status, "podIPs", errors);
    if let Some((_, first)) = items(status, "hostIPs").next() {
        let address = text(first, "ip");
        if text(status, "hostIP") != address {
            let at = path.child("hostIPs").index(0).child("ip");
            errors.invalid(at, address, "must be equal to `hostIP`");
        }
        validate_addresses(status, "hostIPs", errors);
    }
}

fn validate_conditions(status: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, condition) in items(status, "conditions") {
        let path = path.child("conditions").index(index);
        validate_not_negative(condition, &path, errors);
        let kind = text(condition, "type");
        if !SYSTEM_CONDITIONS.contains(&kind) {
            wrong(names::qualified_name(kind), kind, || path.child("Type"), errors);
        }
    }
}

fn validate_not_negative(map: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(generation) = integer(map, "observedGeneration").filter(|it| *it < 0) {
        errors.invalid(
            path.child("observedGeneration"),
            generation,
            "must be a non-negative integer",
        );
    }
}

fn validate_nomination(
    status: &JsonMap,
    old_status: &JsonMap,
    spec: &JsonMap,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let node = text(status, "nominatedNodeName");
    if node.is_empty() || node == text(old_status, "nominatedNodeName") {
        return;
    }
    let at = || path.child("nominatedNodeName");
    wrong(names::dns1123_subdomain(node, false), node, at, errors);
    if !text(spec, "nodeName").is_empty() {
        errors.forbidden(at(), "may not be set on pods that are already bound to a node");
    }
}

/// `validatePodExtendedResourceClaimStatus`
fn validate_extended_claim(pod: &Object, path: &FieldPath, errors: &mut FieldErrors) {
    let claim = object_or_empty(object_or_empty(pod, "status"), "extendedResourceClaimStatus");
    if claim.is_empty() {
        return;
    }
    let path = path.child("extendedResourceClaimStatus");
    let spec = object_or_empty(pod, "spec");
    let container = |name: &str| {
        let in_list = |list| items(spec, list).find(|(_, it)| text(it, "name") == name);
        in_list("containers").or_else(|| in_list("initContainers"))
    };
    if items(claim, "requestMappings").next().is_none() {
        let detail = "at least one request mapping is required";
        errors.required(path.child("requestMappings"), detail);
    }
    let mut seen: Vec<[&str; 3]> = Vec::new();
    for (index, mapping) in items(claim, "requestMappings") {
        let at = |field: &str| path.child("requestMappings").index(index).child(field);
        let [name, resource, request] = ["containerName", "resourceName", "requestName"].map(|it| text(mapping, it));
        match container(name) {
            Some((_, container)) => {
                let requests = object_or_empty(object_or_empty(container, "resources"), "requests");
                if !requests.contains_key(resource) {
                    let detail = "must match the extended resource name of an entry in \
                                  spec.initContainers.resources.requests or spec.containers.resources.requests";
                    errors.invalid(at("resourceName"), resource, detail);
                }
            }
            None => {
                let detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                errors.invalid(at("containerName"), name, detail);
            }
        }
        wrong(
            names::dns1123_label(request, false),
            request,
            || path.child("requestName"),
            errors,
        );
        if seen.contains(&[name, resource, request]) {
            errors.duplicate(at("containerName"), name);
            errors.duplicate(at("resourceName"), resource);
            errors.duplicate(at("requestName"), request);
        }
        seen.push([name, resource, request]);
    }
    let name = text(claim, "resourceClaimName");
    if name.is_empty() {
        errors.required(path.child("resourceClaimName"), "");
    } else {
        wrong(
            names::dns1123_subdomain(name, false),
            name,
            || path.child("resourceClaimName"),
            errors,
        );
    }
}

/// A container that has ended may run again only where its restart policy says so.
fn validate_transitions(
    status: &JsonMap,
    old_status: &JsonMap,
    field: &str,
    (spec, containers): (&JsonMap, &str),
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if !containers.is_empty() && all_could_restart(spec) {
        return;
    }
    let ended = |status: &JsonMap| object(object_or_empty(status, "state"), "terminated").cloned();
    for (index, old) in items(old_status, field) {
        let Some(end) = ended(old) else {
            continue;
        };
        let name = text(old, "name");
        let now = items(status, field).find(|(_, now)| text(now, "name") == name && ended(now).is_none());
        if now.is_none() {
            continue;
        }
        let container = items(spec, containers).find(|(_, container)| text(container, "name") == name);
        let code = integer(&end, "exitCode").unwrap_or(0);
        if !container.is_some_and(|(_, container)| restarts(container, spec, code)) {
            let detail = "may not be transitioned to non-terminated state";
            errors.forbidden(path.index(index).child("state"), detail);
        }
    }
}

/// Returns `true` if a rule of some container restarts all of them.
fn all_could_restart(spec: &JsonMap) -> bool {
    ["containers", "initContainers"].iter().any(|list| {
        items(spec, list).any(|(_, container)| {
            items(container, "restartPolicyRules").any(|(_, rule)| text(rule, "action") == "RestartAllContainers")
        })
    })
}

fn restarts(container: &JsonMap, spec: &JsonMap, code: i64) -> bool {
    for (_, rule) in items(container, "restartPolicyRules") {
        let codes = object_or_empty(rule, "exitCodes");
        let values = codes.get("values").and_then(Value::as_array);
        let listed = values.is_some_and(|values| values.iter().any(|value| value.as_i64() == Some(code)));
        let applies = match text(codes, "operator") {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        };
        if applies && text(rule, "action") == "Restart" {
            return true;
        }
    }
    let policy = match text(container, "restartPolicy") {
        "" => text(spec, "restartPolicy"),
        policy => policy,
    };
    match policy {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    }
}

fn validate_claim_statuses(status: &JsonMap, spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, claim) in items(status, "resourceClaimStatuses") {
        let path = path.child("resourceClaimStatuses").index(index);
        let name = text(claim, "name");
        if !items(spec, "resourceClaims").any(|(_, claim)| text(claim, "name") == name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(path.child("name"), name, detail);
        }
        if seen.contains(&name) {
            errors.duplicate(path.child("name"), name);
        }
        seen.push(name);
        if is_set(claim, "resourceClaimName") {
            let name = text(claim, "resourceClaimName");
            wrong(
                names::dns1123_subdomain(name, false),
                name,
                || path.child("resourceClaimName"),
                errors,
            );
        }
    }
}

fn validate_addresses(status: &JsonMap, field: &str, errors: &mut FieldErrors) {
    let path = FieldPath::new("status").child(field);
    let mut families = (0, 0);
    for (index, entry) in items(status, field) {
        match validate_ip(text(entry, "ip"), || path.index(index), errors) {
            Some(address) if address.is_ipv4() => families.0 += 1,
            Some(_) => families.1 += 1,
            None => {}
        }
    }
    if families.0 > 1 || families.1 > 1 {
        let detail = "may specify no more than one IP for each IP family";
        let shown = status.get(field).map_or(Value::Null, super::print::go_names);
        errors.invalid(path, shown, detail);
    }
}
