//! Updates of a Pod: little of its spec may change, and through subresources their own part of it.

use serde_json::Value;

use super::annotations::{self, MIRROR};
use super::pod_resources::quality_of_service;
use super::print::difference;
use super::scheduling::validate_tolerations;
use super::validation::{deadline, deadline_range, validate_pod};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::object::Object;
use crate::registry::types::view::{
    JsonMap, copy_field, integer, is_set, items, items_mut, list, object, object_mut, object_or_empty, same, text,
    value_of,
};

const UPDATABLE: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` \
    (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
    previously negative)";

fn annotations_of(pod: &Object) -> &JsonMap {
    object_or_empty(object_or_empty(pod, "metadata"), "annotations")
}

fn validate_any(pod: &Object, old: &Object, errors: &mut FieldErrors) {
    validate_pod(pod, errors);
    let path = FieldPath::new("metadata.annotations");
    annotations::validate_changes(annotations_of(pod), annotations_of(old), &path, errors);
}

/// Checks an update of the Pod itself.
pub(super) fn validate_update(pod: &Object, old: &Object, errors: &mut FieldErrors) {
    validate_any(pod, old, errors);
    let path = FieldPath::new("spec");
    let (spec, old_spec) = (object_or_empty(pod, "spec"), object_or_empty(old, "spec"));
    for name in ["containers", "initContainers"] {
        let path = path.child(name);
        if list(spec, name).len() != list(old_spec, name).len() {
            errors.forbidden(path, "pod updates may not add or remove containers");
            return;
        }
        for (index, container) in items(spec, name) {
            let image = text(container, "image");
            if image.is_empty() {
                errors.required(path.index(index).child("image"), "");
            }
            if image.trim() != image {
                let detail = "must not have leading or trailing whitespace";
                errors.invalid(path.index(index).child("image"), image, detail);
            }
        }
    }
    let at = || path.child("activeDeadlineSeconds");
    match (deadline(spec), deadline(old_spec)) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            errors.invalid(at(), seconds, deadline_range());
            return;
        }
        (Some(seconds), Some(old)) if old < seconds => {
            errors.invalid(at(), seconds, "must be less than or equal to previous value");
            return;
        }
        (None, Some(_)) => {
            errors.invalid(
                at(),
                Value::Null,
                "must not update from a positive integer to nil value",
            );
        }
        _ => {}
    }
    validate_added_tolerations(spec, old_spec, &path, errors);
    validate_deleted_gates(spec, old_spec, &path, errors);
    if spec == old_spec {
        return;
    }
    let changed = without_changeable(spec, old_spec, &path, errors);
    if &changed != old_spec {
        let detail = format!("{UPDATABLE}\n{}", difference("core.PodSpec", old_spec, &changed));
        errors.forbidden(path, detail);
    }
}

/// The new spec with what may change as it was, so that any difference left is one too many.
fn without_changeable(spec: &JsonMap, old: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) -> JsonMap {
    let mut rest = spec.clone();
    for name in ["containers", "initContainers"] {
        let old_containers = items(old, name).map(|(_, container)| container);
        for (container, old) in items_mut(&mut rest, name).zip(old_containers) {
            copy_field(old, container, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        copy_field(old, &mut rest, field);
    }
    let negative = integer(old, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0);
    if negative && integer(&rest, "terminationGracePeriodSeconds") == Some(1) {
        copy_field(old, &mut rest, "terminationGracePeriodSeconds");
    }
    if !list(old, "schedulingGates").is_empty() {
        restore_gated(&mut rest, old, path, errors);
    }
    rest
}

/// While a pod is held back by gates, where it may run can be narrowed.
fn restore_gated(rest: &mut JsonMap, old: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    if !same(rest, old, "nodeSelector") {
        let (new, was) = (
            object_or_empty(rest, "nodeSelector"),
            object_or_empty(old, "nodeSelector"),
        );
        if was.iter().any(|(key, value)| new.get(key) != Some(value)) {
            let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            errors.invalid(path.child("nodeSelector"), value_of(rest, "nodeSelector"), detail);
        }
        copy_field(old, rest, "nodeSelector");
    }
    let (affinity, was) = (object_or_empty(rest, "affinity"), object_or_empty(old, "affinity"));
    if same(affinity, was, "nodeAffinity") {
        return;
    }
    validate_narrowed(affinity, was, &path.child("affinity.nodeAffinity"), errors);
    let new_is_bare = !is_set(affinity, "podAffinity") && !is_set(affinity, "podAntiAffinity");
    if is_set(rest, "affinity") && !is_set(old, "affinity") && new_is_bare {
        rest.remove("affinity");
    } else if let Some(affinity) = object_mut(rest, "affinity") {
        copy_field(was, affinity, "nodeAffinity");
    } else if let Some(nodes) = was.get("nodeAffinity") {
        let mut affinity = JsonMap::new();
        affinity.insert("nodeAffinity".to_owned(), nodes.clone());
        rest.insert("affinity".to_owned(), Value::Object(affinity));
    }
}

fn validate_narrowed(affinity: &JsonMap, old: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = |affinity| {
        list(
            object_or_empty(object_or_empty(affinity, "nodeAffinity"), REQUIRED),
            "nodeSelectorTerms",
        )
    };
    let (new, was): (&[Value], &[Value]) = (terms(affinity), terms(old));
    let path = path.child(REQUIRED).child("nodeSelectorTerms");
    let print = super::print::go_names;
    if !was.is_empty() && was.len() != new.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.invalid(path, new.iter().map(print).collect::<Vec<Value>>(), detail);
        return;
    }
    let empty = JsonMap::new();
    for (index, (new, was)) in new.iter().zip(was).enumerate() {
        let shown = print(new);
        let (new, was) = (new.as_object().unwrap_or(&empty), was.as_object().unwrap_or(&empty));
        let fields = ["matchExpressions", "matchFields"];
        let nothing = |term: &JsonMap| fields.iter().all(|field| list(term, field).is_empty());
        let kept = fields
            .iter()
            .all(|field| list(new, field).starts_with(list(was, field)));
        if !kept || (nothing(was) && !nothing(new)) {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.invalid(path.index(index), shown, detail);
        }
    }
}

fn validate_added_tolerations(spec: &JsonMap, old: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    let key_part =
        |toleration: &JsonMap| ["key", "operator", "value", "effect"].map(|field| text(toleration, field).to_owned());
    for (_, old) in items(old, "tolerations") {
        let wanted = key_part(old);
        if !items(spec, "tolerations").any(|(_, toleration)| key_part(toleration) == wanted) {
            let detail = "existing toleration can not be modified except its tolerationSeconds";
            errors.forbidden(path.child("tolerations"), detail);
            return;
        }
    }
    validate_tolerations(spec, path, errors);
}

fn validate_deleted_gates(spec: &JsonMap, old: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, gate) in items(spec, "schedulingGates") {
        let name = text(gate, "name");
        if !items(old, "schedulingGates").any(|(_, old)| text(old, "name") == name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(path.child("schedulingGates").index(index).child("name"), detail);
        }
    }
}

/// Checks a write of `/ephemeralcontainers`: containers may only be added.
pub(super) fn validate_ephemeral_containers(pod: &Object, old: &Object, errors: &mut FieldErrors) {
    if annotations_of(old).contains_key(MIRROR) {
        errors.forbidden(FieldPath::root(), "static pods do not support ephemeral containers");
        return;
    }
    validate_any(pod, old, errors);
    let path = FieldPath::new("spec.ephemeralContainers");
    let spec = object_or_empty(pod, "spec");
    for (_, old) in items(object_or_empty(old, "spec"), "ephemeralContainers") {
        let name = text(old, "name");
        // of several containers of one name the last counts
        let now = items(spec, "ephemeralContainers").map(|(_, container)| container);
        match now.filter(|container| text(container, "name") == name).last() {
            None => {
                let detail = format!("existing ephemeral containers \"{name}\" may not be removed\n");
                errors.forbidden(path.clone(), detail);
            }
            Some(container) if container != old => {
                let changes = difference("core.EphemeralContainer", old, container);
                let detail = format!("existing ephemeral containers \"{name}\" may not be changed\n{changes}");
                errors.forbidden(path.clone(), detail);
            }
            Some(_) => {}
        }
    }
}

/// Checks a write of `/resize`: CPU and memory of containers that stay the same.
pub(super) fn validate_resize(pod: &Object, old: &Object, errors: &mut FieldErrors) {
    let (spec, old_spec) = (object_or_empty(pod, "spec"), object_or_empty(old, "spec"));
    if annotations_of(old).contains_key(MIRROR) {
        errors.forbidden(FieldPath::root(), "static pods cannot be resized");
        return;
    }
    if text(object_or_empty(old_spec, "os"), "name") == "windows" {
        errors.forbidden(FieldPath::root(), "windows pods cannot be resized");
        return;
    }
    validate_pod(pod, errors);
    let path = FieldPath::new("spec");
    let quality = text(object_or_empty(old, "status"), "qosClass");
    let quality = if quality.is_empty() {
        quality_of_service(old_spec)
    } else {
        quality
    };
    if quality_of_service(spec) != quality {
        let now = text(object_or_empty(pod, "status"), "qosClass");
        errors.invalid(
            path.clone(),
            now,
            "Pod QOS Class may not change as a result of resizing",
        );
    }
    let running = items(object_or_empty(old, "status"), "containerStatuses")
        .find(|(_, status)| is_set(object_or_empty(status, "state"), "running"));
    if running.is_some_and(|(_, status)| !is_set(status, "resources")) {
        errors.forbidden(path.clone(), "Pod running on node without support for resize");
    }
    if validate_order(spec, old_spec, &path, errors) {
        validate_resized(spec, old_spec, &path, errors);
    }
}

/// Containers stay where they are; whether they do.
fn validate_order(spec: &JsonMap, old: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) -> bool {
    let before = errors.iter().len();
    for name in ["containers", "initContainers"] {
        let path = path.child(name);
        if list(spec, name).len() != list(old, name).len() {
            errors.forbidden(path, format!("{name} may not be added or removed on resize"));
            continue;
        }
        let pairs = items(spec, name).zip(items(old, name));
        for ((index, container), (_, old)) in pairs {
            if text(container, "name") != text(old, "name") {
                let detail = format!("{name} may not be renamed or reordered on resize");
                errors.forbidden(path.index(index).child("name"), detail);
            }
        }
    }
    errors.iter().len() == before
}

fn validate_resized(spec: &JsonMap, old_spec: &JsonMap, path: &FieldPath, errors: &mut FieldErrors) {
    validate_kept(
        object(spec, "resources"),
        object(old_spec, "resources"),
        "pod-level ",
        path,
        errors,
    );
    for name in ["initContainers", "containers"] {
        let pairs = items(spec, name).zip(items(old_spec, name));
        for ((index, container), (_, old)) in pairs {
            let (now, was) = (object(container, "resources"), object(old, "resources"));
            validate_kept(now, was, "", &path.child(name).index(index), errors);
        }
    }
    for name in ["containers", "initContainers"] {
        let pairs = items(spec, name).zip(items(old_spec, name));
        for ((index, container), (_, old)) in pairs {
            if only_compute_changed(container, old) {
                let policies = items(container, "resizePolicy").map(|(_, policy)| text(policy, "restartPolicy"));
                let restarts = policies.filter(|policy| *policy == "RestartContainer").count();
                let sidecar = text(container, "restartPolicy") == "Always";
                if name == "initContainers" && !sidecar && container != old && restarts > 0 {
                    let detail =
                        "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                    errors.forbidden(path.child(name).index(index), detail);
                }
            } else if name == "containers" {
                errors.forbidden(path.clone(), "only cpu and memory resources are mutable");
            } else {
                let detail = "only cpu and memory resources for init or sidecar containers are mutable";
                errors.forbidden(path.child(name).index(index), detail);
            }
        }
    }
}

fn validate_kept(
    now: Option<&JsonMap>,
    was: Option<&JsonMap>,
    whose: &str,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let Some(was) = was else {
        return;
    };
    let Some(now) = now else {
        if !whose.is_empty() {
            errors.forbidden(path.child("resources"), format!("{whose}resources cannot be removed"));
        }
        return;
    };
    for which in ["requests", "limits"] {
        let kept = object_or_empty(now, which);
        if object_or_empty(was, which)
            .keys()
            .any(|resource| !kept.contains_key(resource))
        {
            let detail = format!("{whose}resource {which} cannot be removed");
            errors.forbidden(path.child("resources").child(which), detail);
        }
    }
}

/// Returns `true` if the containers are the same but for CPU and memory.
fn only_compute_changed(container: &JsonMap, old: &JsonMap) -> bool {
    let others_same = container
        .keys()
        .chain(old.keys())
        .all(|key| key == "resources" || same(container, old, key));
    let (now, was) = (
        object_or_empty(container, "resources"),
        object_or_empty(old, "resources"),
    );
    let resources_same = ["requests", "limits"].iter().all(|which| {
        let (now, was) = (object_or_empty(now, which), object_or_empty(was, which));
        now.keys()
            .chain(was.keys())
            .all(|resource| resource == "cpu" || resource == "memory" || same(now, was, resource))
    });
    others_same && resources_same && same(now, was, "claims")
}
