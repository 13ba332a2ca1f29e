//! Annotations that mean something to a pod.

use serde_json::Value;

use super::windows::visit_containers;
use crate::api::field::{FieldErrors, FieldPath};
use crate::registry::types::view::{JsonMap, text};

use super::mounts::descending;

/// Marks a pod that mirrors one of a kubelet's own.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Checks the annotations of a pod or of a template.
pub(super) fn validate_annotations(annotations: &JsonMap, spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(value) = annotations.get(MIRROR)
        && text(spec, "nodeName").is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(path.key(MIRROR), value.clone(), detail);
    }
    if let Some(cost) = annotations.get(DELETION_COST).and_then(Value::as_str)
        && !is_cost(cost)
    {
        errors.invalid(path.key(DELETION_COST), cost, "must be a 32bit integer");
    }
    for (key, value) in annotations {
        let profile = value.as_str().unwrap_or_default();
        if key == SECCOMP || key.starts_with(SECCOMP_CONTAINER) {
            match profile.strip_prefix("localhost/") {
                Some(file) => descending(file, || path.child(key), errors),
                None if matches!(profile, "runtime/default" | "docker/default" | "unconfined") => {}
                None => errors.invalid(path.child(key), profile, "must be a valid seccomp profile"),
            }
        }
    }
    for (key, value) in annotations {
        let Some(name) = key.strip_prefix(APP_ARMOR) else {
            continue;
        };
        let mut found = false;
        visit_containers(spec, path, |container, _| found |= text(container, "name") == name);
        if !found {
            errors.invalid(path.key(key), name, "container not found");
        }
        let profile = value.as_str().unwrap_or_default();
        if !matches!(profile, "" | "runtime/default" | "unconfined") && !profile.starts_with("localhost/") {
            let detail = format!("invalid AppArmor profile name: {}", crate::api::field::quote(profile));
            errors.invalid(path.key(key), profile, detail);
        }
    }
}

/// Returns `true` if this is an integer of 32 bits without a leading zero or plus.
fn is_cost(cost: &str) -> bool {
    let first = cost.bytes().next().unwrap_or(b'+');
    first != b'+' && (first != b'0' || cost == "0") && cost.parse::<i32>().is_ok()
}

/// Checks that an update leaves alone the annotations that may not change.
pub(super) fn validate_changes(annotations: &JsonMap, old: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    for (key, value) in old {
        if annotations.get(key) == Some(value) {
            continue;
        }
        if key.starts_with(APP_ARMOR) {
            errors.forbidden(path.key(key), "may not remove or update AppArmor annotations");
        }
        if key == MIRROR {
            errors.forbidden(path.key(key), "may not remove or update mirror pod annotation");
        }
    }
    for key in annotations.keys().filter(|key| !old.contains_key(*key)) {
        if key.starts_with(APP_ARMOR) {
            errors.forbidden(path.key(key), "may not add AppArmor annotations");
        }
        if key == MIRROR {
            errors.forbidden(path.key(key), "may not add mirror pod annotation");
        }
    }
}
