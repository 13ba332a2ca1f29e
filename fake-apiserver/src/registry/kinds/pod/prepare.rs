//! Preparation of a Pod before validation: fields that the server sets, and those that each subresource may change.

use serde_json::{Value, json};

use super::pod_resources::quality_of_service;
use crate::api::object::Object;
use crate::registry::types::view::{
    JsonMap, copy_field, default_number, default_object, default_text, default_value, integer, is_set, items,
    items_mut, list, object, object_made, object_mut, object_or_empty, text, texts,
};

/// The metadata a subresource leaves alone.
const KEPT_METADATA: [&str; 6] = [
    "deletionTimestamp",
    "generation",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
];

/// Sets every field of a status that is always shown.
pub(super) fn default_status(status: &mut JsonMap) {
    let address = text(status, "podIP").to_owned();
    let first = items(status, "podIPs")
        .next()
        .map(|(_, first)| text(first, "ip").to_owned());
    match first {
        // the single address wins over a list that begins with another
        Some(first) if address.is_empty() => default_text(status, "podIP", &first),
        first if !address.is_empty() && first.as_ref() != Some(&address) => {
            status.insert("podIPs".to_owned(), json!([{ "ip": address }]));
        }
        _ => {}
    }
    for condition in items_mut(status, "conditions") {
        for time in ["lastProbeTime", "lastTransitionTime"] {
            default_value(condition, time, || Value::Null);
        }
    }
    for list in [
        "initContainerStatuses",
        "containerStatuses",
        "ephemeralContainerStatuses",
    ] {
        for container in items_mut(status, list) {
            default_container_status(container);
        }
    }
}

fn default_container_status(container: &mut JsonMap) {
    for field in ["name", "image", "imageID"] {
        default_text(container, field, "");
    }
    default_value(container, "ready", || Value::Bool(false));
    default_number(container, "restartCount", 0);
    for which in ["state", "lastState"] {
        default_object(container, which);
        let Some(state) = object_mut(container, which) else {
            continue;
        };
        if let Some(running) = object_mut(state, "running") {
            default_value(running, "startedAt", || Value::Null);
        }
        if let Some(terminated) = object_mut(state, "terminated") {
            default_number(terminated, "exitCode", 0);
            default_value(terminated, "startedAt", || Value::Null);
            default_value(terminated, "finishedAt", || Value::Null);
        }
    }
}

/// Sets the status of a new pod and completes its label selectors.
pub(super) fn prepare_created(pod: &mut Object) {
    let spec = object_or_empty(pod, "spec");
    let mut status = json!({ "phase": "Pending", "qosClass": quality_of_service(spec) });
    if !list(spec, "schedulingGates").is_empty() {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": null,
            "lastTransitionTime": null,
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    pod.insert("status".to_owned(), status);
    if !is_set(spec_of(pod), "affinity") && !is_set(spec_of(pod), "topologySpreadConstraints") {
        return;
    }
    let labels = object_or_empty(object_or_empty(pod, "metadata"), "labels").clone();
    if let Some(spec) = object_mut(pod, "spec") {
        complete_selectors(spec, &labels);
    }
}

fn spec_of(pod: &Object) -> &JsonMap {
    object_or_empty(pod, "spec")
}

/// Writes the values that `matchLabelKeys` stand for into the label selectors beside them.
fn complete_selectors(spec: &mut JsonMap, labels: &JsonMap) {
    for constraint in items_mut(spec, "topologySpreadConstraints") {
        add_label_keys(constraint, "matchLabelKeys", "In", labels);
    }
    let Some(affinity) = object_mut(spec, "affinity") else {
        return;
    };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = object_mut(affinity, kind) else {
            continue;
        };
        for term in items_mut(affinity, "requiredDuringSchedulingIgnoredDuringExecution") {
            add_label_keys(term, "matchLabelKeys", "In", labels);
            add_label_keys(term, "mismatchLabelKeys", "NotIn", labels);
        }
        for weighted in items_mut(affinity, "preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = object_mut(weighted, "podAffinityTerm") {
                add_label_keys(term, "matchLabelKeys", "In", labels);
                add_label_keys(term, "mismatchLabelKeys", "NotIn", labels);
            }
        }
    }
}

fn add_label_keys(term: &mut JsonMap, keys: &str, operator: &str, labels: &JsonMap) {
    let added: Vec<Value> = texts(term, keys)
        .filter_map(|(_, key)| {
            let value = labels.get(key)?;
            Some(json!({ "key": key, "operator": operator, "values": [value] }))
        })
        .collect();
    if added.is_empty() {
        return;
    }
    let Some(selector) = object_mut(term, "labelSelector") else {
        return;
    };
    default_value(selector, "matchExpressions", || Value::Array(Vec::new()));
    if let Some(expressions) = selector.get_mut("matchExpressions").and_then(Value::as_array_mut) {
        expressions.extend(added);
    }
}

/// The field of the status behind the gate DRANodeAllocatableResources.
const ALLOCATABLE: &str = "nodeAllocatableResourceClaimStatuses";

/// Keeps what a writer of `/status` may leave out.
pub(super) fn prepare_status(pod: &mut Object, old: &Object) {
    if let Some(old_meta) = old.metadata() {
        copy_field(old_meta, pod.metadata_mut(), "ownerReferences");
    }
    let old_status = object_or_empty(old, "status");
    let Some(status) = object_made(pod, "status") else {
        return;
    };
    if items(old_status, ALLOCATABLE).next().is_none() {
        status.remove(ALLOCATABLE);
    }
    for field in ["qosClass", "observedGeneration"] {
        let unset = match status.get(field) {
            None | Some(Value::Null) => true,
            Some(value) => value.as_str() == Some("") || value.as_i64() == Some(0),
        };
        if unset {
            copy_field(old_status, status, field);
        }
    }
    let mut left: Vec<&JsonMap> = items(old_status, "conditions")
        .map(|(_, condition)| condition)
        .collect();
    for condition in items_mut(status, "conditions") {
        let kind = text(condition, "type");
        let Some(place) = left.iter().position(|old| text(old, "type") == kind) else {
            continue;
        };
        let old = left.remove(place);
        if integer(condition, "observedGeneration").unwrap_or(0) == 0 {
            copy_field(old, condition, "observedGeneration");
        }
    }
}

/// Puts everything back but `spec.ephemeralContainers`.
pub(super) fn keep_ephemeral_containers_only(pod: &mut Object, old: &Object) {
    let wanted = object(pod, "spec")
        .and_then(|spec| spec.get("ephemeralContainers"))
        .cloned();
    restore(pod, old);
    if let Some(spec) = object_made(pod, "spec") {
        match wanted {
            Some(containers) => spec.insert("ephemeralContainers".to_owned(), containers),
            None => spec.remove("ephemeralContainers"),
        };
    }
}

/// Puts everything back but the resources and resize policies of containers, and the resources of the whole pod.
/// Where containers are added, removed, renamed or moved, nothing is put back: the check of the update refuses that.
pub(super) fn keep_resources_only(pod: &mut Object, old: &Object) {
    let old_spec = object_or_empty(old, "spec");
    let names = |spec: &JsonMap, field: &str| -> Vec<String> {
        items(spec, field)
            .map(|(_, container)| text(container, "name").to_owned())
            .collect()
    };
    let lists = ["containers", "initContainers"];
    let spec = object_or_empty(pod, "spec");
    if lists.iter().any(|field| names(spec, field) != names(old_spec, field)) {
        return;
    }
    let wanted = spec.clone();
    restore(pod, old);
    let Some(spec) = object_mut(pod, "spec") else {
        return;
    };
    copy_field(&wanted, spec, "resources");
    for field in lists {
        let asked = items(&wanted, field).map(|(_, container)| container);
        for (container, asked) in items_mut(spec, field).zip(asked) {
            copy_field(asked, container, "resources");
            copy_field(asked, container, "resizePolicy");
        }
    }
}

fn restore(pod: &mut Object, old: &Object) {
    copy_field(old, pod, "spec");
    copy_field(old, pod, "status");
    let old_meta = object_or_empty(old, "metadata");
    let meta = pod.metadata_mut();
    for field in KEPT_METADATA {
        copy_field(old_meta, meta, field);
    }
}
