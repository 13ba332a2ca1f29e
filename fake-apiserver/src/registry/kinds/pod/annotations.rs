//! Pod annotations that Kubernetes defines.

use super::mounts::descending;
use super::scheduling::validate_toleration_list;
use super::windows::containers;
use crate::api::field::{FieldErrors, quote};
use crate::api::json::{Map, syntax_error};
use crate::api::json::{Value, json};
use crate::registry::types::cursor::Cursor;

/// Annotation of a mirror pod, which represents a static pod of a kubelet.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Annotation with tolerations as JSON, from older versions of Kubernetes.
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";

/// Annotation with the seccomp profile of a pod, from older versions of Kubernetes.
pub(super) const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
/// Prefix of the annotation with the seccomp profile of one container, from older versions of Kubernetes.
pub(super) const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// Prefix of the annotation with the AppArmor profile of a container, from older versions of Kubernetes.
pub(super) const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Returns `true` if an annotation has this prefix. Few Pods have such annotations, so the checks of each container can
/// usually be skipped.
pub(super) fn has_prefix(annotations: &Cursor<'_>, prefix: &str) -> bool {
    annotations.entries("").any(|(key, _)| key.starts_with(prefix))
}

/// Checks the annotations of a pod or of a template.
pub(super) fn validate_annotations(annotations: &Cursor<'_>, spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let mirror = annotations.entry(MIRROR);
    if mirror.is_set("") && spec.is_empty("nodeName") {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        errors.invalid(mirror, mirror.to_value(), detail);
    }
    validate_old_tolerations(annotations, errors);
    let cost = annotations.entry(DELETION_COST);
    if cost.is_set("") && !is_cost(cost.as_text()) {
        errors.invalid(cost, cost.as_text(), "must be a 32bit integer");
    }
    for (key, profile) in annotations.entries("") {
        if key == SECCOMP || key.starts_with(SECCOMP_CONTAINER) {
            // As in kube-apiserver, the path contains the key as if it were a field.
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

/// Checks the annotation with tolerations (`ValidateTolerationsInPodAnnotations`).
fn validate_old_tolerations(annotations: &Cursor<'_>, errors: &mut FieldErrors) {
    let written = annotations.entry(TOLERATIONS).as_text();
    if written.is_empty() {
        return;
    }
    match read_tolerations(written) {
        Ok(tolerations) => {
            // As in kube-apiserver, the path contains the key as if it were a field.
            let path = annotations.path().child(TOLERATIONS);
            validate_toleration_list(&Cursor::value_at(Some(&tolerations), &path), errors);
        }
        Err(trouble) => errors.invalid(annotations, TOLERATIONS, trouble),
    }
}

/// Parses tolerations from JSON. Field names are case-insensitive, because the Go type does not define JSON names.
fn read_tolerations(written: &str) -> Result<Value, String> {
    const FIELDS: [&str; 5] = ["key", "operator", "value", "effect", "tolerationSeconds"];
    let wrong = |value: &Value, place: &str| {
        let found = match value {
            Value::Null | Value::Object(_) => "object",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
        };
        Err(format!("json: cannot unmarshal {found} into Go value of type {place}"))
    };
    let parsed = serde_json::from_str(written);
    let parsed = parsed.map_err(|error| syntax_error(written.as_bytes()).unwrap_or_else(|| error.to_string()));
    let items = match parsed? {
        Value::Null => Vec::new(),
        Value::Array(items) => items,
        other => return wrong(&other, "[]core.Toleration"),
    };
    let mut read = Vec::with_capacity(items.len());
    for item in items {
        let fields = match item {
            Value::Null => Map::new(),
            Value::Object(fields) => fields,
            other => return wrong(&other, "core.Toleration"),
        };
        let known = |name: &str| FIELDS.into_iter().find(|field| field.eq_ignore_ascii_case(name));
        let fields = fields.into_iter();
        let fields = fields.filter_map(|(name, value)| Some((known(&name)?.to_owned(), value)));
        read.push(Value::Object(fields.collect()));
    }
    Ok(Value::Array(read))
}

/// Returns the profile field that corresponds to an AppArmor annotation (`ApparmorFieldForAnnotation`).
pub(super) fn app_armor_profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => match annotation.strip_prefix("localhost/") {
            Some(file) if !file.is_empty() => Some(json!({"type": "Localhost", "localhostProfile": file})),
            _ => None,
        },
    }
}

/// Returns `true` for a 32-bit integer without leading zeros or a plus sign.
fn is_cost(cost: &str) -> bool {
    let first = cost.bytes().next().unwrap_or(b'+');
    first != b'+' && (first != b'0' || cost == "0") && cost.parse::<i32>().is_ok()
}

/// Checks that an update does not change immutable annotations, and that all are valid
/// (`ValidatePodSpecificAnnotationUpdates`).
pub(super) fn validate_changes(pod: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
    let (annotations, old) = (pod.at("metadata.annotations"), old.at("metadata.annotations"));
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
    validate_annotations(&annotations, &pod.at("spec"), errors);
}
