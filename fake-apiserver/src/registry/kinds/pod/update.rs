//! Validation of Pod updates, including the subresources. Updates of the Pod itself may only change a few fields of the
//! spec.

use super::annotations::{self, MIRROR};
use super::containers::validate_image_spaces;
use super::pod_resources::quality_of_service;
use super::print::{difference, go_names};
use super::scheduling::validate_tolerations;
use super::validation::{deadline_range, validate_pod};
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{copy_field, items_mut, object_mut};

const UPDATABLE: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` \
    (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
    previously negative)";

fn validate_any(pod: &Object, old: &Object, errors: &mut FieldErrors) {
    validate_pod(pod, errors);
    let (pod, old) = (Cursor::root(pod), Cursor::root(old));
    annotations::validate_changes(&pod, &old, errors);
}

/// Checks an update of the Pod itself.
pub(super) fn validate_update(pod: &Object, old: &Object, errors: &mut FieldErrors) {
    validate_any(pod, old, errors);
    let (pod, old) = (Cursor::root(pod), Cursor::root(old));
    let (spec, old_spec) = (pod.at("spec"), old.at("spec"));
    for name in ["containers", "initContainers"] {
        let containers = spec.at(name);
        if containers.list("").len() != old_spec.list(name).len() {
            errors.forbidden(containers, "pod updates may not add or remove containers");
            return;
        }
        for container in containers.items("") {
            container.at("image").check_required(errors);
            validate_image_spaces(&container, errors);
        }
    }
    let deadline = spec.at("activeDeadlineSeconds");
    match (deadline.integer(""), old_spec.integer("activeDeadlineSeconds")) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            errors.invalid(deadline, seconds, deadline_range());
            return;
        }
        (Some(seconds), Some(old)) if old < seconds => {
            errors.invalid(deadline, seconds, "must be less than or equal to previous value");
            return;
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.invalid(deadline, Value::Null, detail);
        }
        _ => {}
    }
    validate_added_tolerations(&spec, &old_spec, errors);
    validate_deleted_gates(&spec, &old_spec, errors);
    let (Some(new), Some(old)) = (spec.map(""), old_spec.map("")) else {
        return;
    };
    if new == old {
        return;
    }
    let changed = without_changeable(&spec, new, &old_spec, old, errors);
    if &changed != old {
        let detail = format!("{UPDATABLE}\n{}", difference("core.PodSpec", old, &changed));
        errors.forbidden(spec, detail);
    }
}

/// Returns the new spec with the old values of mutable fields. Every remaining difference from the old spec is an
/// error.
fn without_changeable(spec: &Cursor<'_>, new: &Map, old_spec: &Cursor<'_>, old: &Map, errors: &mut FieldErrors) -> Map {
    let mut rest = new.clone();
    for name in ["containers", "initContainers"] {
        let old_containers = old_spec.list(name).iter().filter_map(Value::as_object);
        for (container, old) in items_mut(&mut rest, name).zip(old_containers) {
            copy_field(old, container, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        copy_field(old, &mut rest, field);
    }
    let grace = |spec: &Cursor<'_>| spec.integer("terminationGracePeriodSeconds");
    if grace(old_spec).is_some_and(|seconds| seconds < 0) && grace(spec) == Some(1) {
        copy_field(old, &mut rest, "terminationGracePeriodSeconds");
    }
    if !old_spec.is_empty("schedulingGates") {
        restore_gated(&mut rest, old, spec, old_spec, errors);
    }
    rest
}

/// Checks that an update of a pod with scheduling gates only narrows its node selector and node affinity, and restores
/// the old values of both in `rest`.
fn restore_gated(rest: &mut Map, old: &Map, spec: &Cursor<'_>, old_spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let selector = spec.at("nodeSelector");
    if !spec.same(old_spec, "nodeSelector") {
        let mut was = old_spec.map("nodeSelector").into_iter().flatten();
        if was.any(|(key, value)| selector.entry(key).get("") != Some(value)) {
            let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            errors.invalid(selector, selector.to_value(), detail);
        }
        copy_field(old, rest, "nodeSelector");
    }
    if spec.same(old_spec, "affinity.nodeAffinity") {
        return;
    }
    validate_narrowed(spec, old_spec, errors);
    let new_is_bare = !spec.is_set("affinity.podAffinity") && !spec.is_set("affinity.podAntiAffinity");
    if spec.is_set("affinity") && !old_spec.is_set("affinity") && new_is_bare {
        rest.remove("affinity");
        return;
    }
    let nodes = old_spec.get("affinity.nodeAffinity").cloned();
    match (object_mut(rest, "affinity"), nodes) {
        (Some(affinity), Some(nodes)) => _ = affinity.insert("nodeAffinity".into(), nodes),
        (Some(affinity), None) => _ = affinity.remove("nodeAffinity"),
        (None, Some(nodes)) => _ = rest.insert("affinity".into(), json!({ "nodeAffinity": nodes })),
        (None, None) => {}
    }
}

fn validate_narrowed(spec: &Cursor<'_>, old_spec: &Cursor<'_>, errors: &mut FieldErrors) {
    const WAY: &str = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    const FIELDS: [&str; 2] = ["matchExpressions", "matchFields"];
    let (new, was) = (spec.at(WAY), old_spec.at(WAY));
    if !was.is_empty("") && was.list("").len() != new.list("").len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.invalid(new, new.list("").iter().map(go_names).collect::<Vec<Value>>(), detail);
        return;
    }
    for (new, was) in new.items("").zip(was.items("")) {
        let nothing = |term: &Cursor<'_>| FIELDS.iter().all(|field| term.is_empty(field));
        let kept = FIELDS.iter().all(|field| new.list(field).starts_with(was.list(field)));
        if !kept || (nothing(&was) && !nothing(&new)) {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.invalid(new, go_names(&new.to_value()), detail);
        }
    }
}

fn validate_added_tolerations(spec: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
    let is_same = |one: &Cursor<'_>, other: &Cursor<'_>| {
        let mut fields = ["key", "operator", "value", "effect"].iter();
        fields.all(|field| one.text(field) == other.text(field))
    };
    for old in old.items("tolerations") {
        if !spec.items("tolerations").any(|toleration| is_same(&toleration, &old)) {
            let detail = "existing toleration can not be modified except its tolerationSeconds";
            errors.forbidden(spec.at("tolerations"), detail);
            return;
        }
    }
    validate_tolerations(spec, errors);
}

fn validate_deleted_gates(spec: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) {
    for gate in spec.items("schedulingGates") {
        let name = gate.text("name");
        if !old.items("schedulingGates").any(|old| old.text("name") == name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(gate.at("name"), detail);
        }
    }
}

/// Checks a write of `/ephemeralcontainers`, which may only add ephemeral containers.
pub(super) fn validate_ephemeral_containers(pod: &Object, old: &Object, errors: &mut FieldErrors) {
    let (new, was) = (Cursor::root(pod), Cursor::root(old));
    if was.at("metadata.annotations").entry(MIRROR).is_set("") {
        errors.forbidden(FieldPath::unnamed(), "static pods do not support ephemeral containers");
        return;
    }
    validate_any(pod, old, errors);
    let containers = new.at("spec.ephemeralContainers");
    for old in was.items("spec.ephemeralContainers") {
        let name = old.text("name");
        // If several containers have this name, the last one is used.
        match containers
            .items("")
            .filter(|container| container.text("name") == name)
            .last()
        {
            None => {
                let detail = format!("existing ephemeral containers \"{name}\" may not be removed\n");
                errors.forbidden(containers, detail);
            }
            Some(container) if !container.same(&old, "") => {
                let maps = old.map("").zip(container.map(""));
                let changes = maps.map_or_else(String::new, |(old, new)| {
                    difference("core.EphemeralContainer", old, new)
                });
                let detail = format!("existing ephemeral containers \"{name}\" may not be changed\n{changes}");
                errors.forbidden(containers, detail);
            }
            Some(_) => {}
        }
    }
}

/// Checks a write of `/resize`, which may only change CPU and memory, but not the list of containers.
pub(super) fn validate_resize(pod: &Object, old: &Object, errors: &mut FieldErrors) {
    let (new, was) = (Cursor::root(pod), Cursor::root(old));
    let (spec, old_spec) = (new.at("spec"), was.at("spec"));
    if was.at("metadata.annotations").entry(MIRROR).is_set("") {
        errors.forbidden(FieldPath::unnamed(), "static pods cannot be resized");
        return;
    }
    if old_spec.text("os.name") == "windows" {
        errors.forbidden(FieldPath::unnamed(), "windows pods cannot be resized");
        return;
    }
    validate_pod(pod, errors);
    let quality = match was.text("status.qosClass") {
        "" => quality_of_service(&old_spec),
        quality => quality,
    };
    if quality_of_service(&spec) != quality {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.invalid(spec, new.text("status.qosClass"), detail);
    }
    let running = was
        .items("status.containerStatuses")
        .find(|status| status.is_set("state.running"));
    if running.is_some_and(|status| !status.is_set("resources")) {
        errors.forbidden(spec, "Pod running on node without support for resize");
    }
    validate_pod_level(&spec, &old_spec, errors);
    if validate_order(&spec, &old_spec, errors) {
        validate_resized(&spec, &old_spec, errors);
    }
}

/// Checks that no containers are added, removed, renamed or reordered. Returns `true` if there are no errors.
fn validate_order(spec: &Cursor<'_>, old: &Cursor<'_>, errors: &mut FieldErrors) -> bool {
    let before = errors.iter().len();
    for name in ["containers", "initContainers"] {
        let containers = spec.at(name);
        if containers.list("").len() != old.list(name).len() {
            errors.forbidden(containers, format!("{name} may not be added or removed on resize"));
            continue;
        }
        for (container, old) in containers.items("").zip(old.items(name)) {
            if container.text("name") != old.text("name") {
                let detail = format!("{name} may not be renamed or reordered on resize");
                errors.forbidden(container.at("name"), detail);
            }
        }
    }
    errors.iter().len() == before
}

/// Checks a change of the pod-level resources (`validatePodLevelResourcesResize`).
fn validate_pod_level(spec: &Cursor<'_>, old_spec: &Cursor<'_>, errors: &mut FieldErrors) {
    let (now, was) = (spec.at("resources"), old_spec.at("resources"));
    if ["requests", "limits"]
        .iter()
        .all(|which| now.is_empty(which) && was.is_empty(which))
    {
        return;
    }
    validate_kept(&now, &was, "pod-level ", errors);
    let is_gone = was.is_set("") && !now.is_set("");
    if !is_gone && (!same_but_compute(&now, &was) || !now.same(&was, "claims")) {
        errors.forbidden(spec, "only cpu and memory resources are mutable at pod-level");
    }
}

fn validate_resized(spec: &Cursor<'_>, old_spec: &Cursor<'_>, errors: &mut FieldErrors) {
    for name in ["initContainers", "containers"] {
        for (container, old) in spec.items(name).zip(old_spec.items(name)) {
            validate_kept(&container.at("resources"), &old.at("resources"), "", errors);
        }
    }
    for name in ["containers", "initContainers"] {
        for (container, old) in spec.items(name).zip(old_spec.items(name)) {
            match (only_compute_changed(&container, &old), name) {
                (true, _) => {}
                (false, "containers") => errors.forbidden(spec, "only cpu and memory resources are mutable"),
                (false, _) => {
                    let detail = "only cpu and memory resources for init or sidecar containers are mutable";
                    errors.forbidden(container, detail);
                }
            }
            let sidecar = container.text("restartPolicy") == "Always";
            if name == "containers" || sidecar || container.same(&old, "") {
                continue;
            }
            let policies = container.items("resizePolicy");
            for _ in policies.filter(|policy| policy.text("restartPolicy") == "RestartContainer") {
                let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                errors.forbidden(container, detail);
            }
        }
    }
}

fn validate_kept(now: &Cursor<'_>, was: &Cursor<'_>, whose: &str, errors: &mut FieldErrors) {
    if !was.is_set("") {
        return;
    }
    if !now.is_set("") {
        if !whose.is_empty() {
            errors.forbidden(now, format!("{whose}resources cannot be removed"));
        }
        return;
    }
    for which in ["requests", "limits"] {
        let kept = now.at(which);
        if was.entries(which).any(|(resource, _)| !kept.entry(resource).is_set("")) {
            errors.forbidden(kept, format!("{whose}resource {which} cannot be removed"));
        }
    }
}

/// Returns `true` if the containers are equal except for CPU and memory.
fn only_compute_changed(container: &Cursor<'_>, old: &Cursor<'_>) -> bool {
    let (now, was) = (container.at("resources"), old.at("resources"));
    // Like kube-apiserver, ignores the claims of the new container.
    container.same_but(old, &["resources"]) && same_but_compute(&now, &was) && was.is_empty("claims")
}

fn same_but_compute(now: &Cursor<'_>, was: &Cursor<'_>) -> bool {
    let mut lists = ["requests", "limits"].iter();
    lists.all(|which| now.at(which).same_but(&was.at(which), &["cpu", "memory"]))
}
