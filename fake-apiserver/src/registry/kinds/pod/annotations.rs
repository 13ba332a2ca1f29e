//! Annotations that mean something to a pod.

use super::mounts::descending;
use super::windows::containers;
use crate::api::field::{FieldErrors, quote};
use crate::registry::types::cursor::Cursor;

/// Marks a pod that mirrors one of a kubelet's own.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Checks the annotations of a pod or of a template.
pub(super) fn validate_annotations(annotations: &Cursor<'_>, spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let mirror = annotations.entry(MIRROR);
    if mirror.is_set("") && spec.is_empty("nodeName") {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(mirror, mirror.to_value(), detail);
    }
    let cost = annotations.entry(DELETION_COST);
    if cost.is_set("") && !is_cost(cost.as_text()) {
        errors.invalid(cost, cost.as_text(), "must be a 32bit integer");
    }
    for (key, profile) in annotations.entries("") {
        if key == SECCOMP || key.starts_with(SECCOMP_CONTAINER) {
            // The server shows the key as if it were a field.
            let at = || annotations.path().child(key);
            let text = profile.as_text();
            match text.strip_prefix("localhost/") {
                Some(file) => descending(&Cursor::value_at(Some(&file.into()), &at()), errors),
                None if matches!(text, "runtime/default" | "docker/default" | "unconfined") => {}
                None => errors.invalid(at(), text, "must be a valid seccomp profile"),
            }
        }
    }
    for (key, profile) in annotations.entries("") {
        let Some(name) = key.strip_prefix(APP_ARMOR) else {
            continue;
        };
        if !containers(spec).any(|container| container.text("name") == name) {
            errors.invalid(profile, name, "container not found");
        }
        let text = profile.as_text();
        if !matches!(text, "" | "runtime/default" | "unconfined") && !text.starts_with("localhost/") {
            let detail = format!("invalid AppArmor profile name: {}", quote(text));
            errors.invalid(profile, text, detail);
        }
    }
}

/// Returns `true` if this is an integer of 32 bits without a leading zero or plus.
fn is_cost(cost: &str) -> bool {
    let first = cost.bytes().next().unwrap_or(b'+');
    first != b'+' && (first != b'0' || cost == "0") && cost.parse::<i32>().is_ok()
}

/// Checks that an update leaves alone the annotations that may not change.
pub(super) fn validate_changes(annotations: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
    for (key, value) in old.entries("") {
        let now = annotations.entry(key);
        if now.same(&value, "") {
            continue;
        }
        if key.starts_with(APP_ARMOR) {
            errors.forbidden(now, "may not remove or update AppArmor annotations");
        }
        if key == MIRROR {
            errors.forbidden(now, "may not remove or update mirror pod annotation");
        }
    }
    for (key, now) in annotations.entries("").filter(|(key, _)| !old.entry(key).is_set("")) {
        if key.starts_with(APP_ARMOR) {
            errors.forbidden(now, "may not add AppArmor annotations");
        }
        if key == MIRROR {
            errors.forbidden(now, "may not add mirror pod annotation");
        }
    }
}
