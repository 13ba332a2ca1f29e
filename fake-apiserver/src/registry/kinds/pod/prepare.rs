//! Preparation of a Pod before validation: sets the fields that the server controls, and restores the fields that a
//! subresource may not change.

use std::collections::{BTreeMap, VecDeque};

use super::annotations::{APP_ARMOR, app_armor_profile, has_prefix};
use super::defaults::CONTAINER_LISTS;
use super::pod_resources::quality_of_service;
use super::security::validate_app_armor_profile;
use super::windows::containers;
use crate::api::field::{FieldErrors, FieldPath};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{copy_field, default_text, default_value, ensure_object, items_mut, object_mut};

/// Metadata that writes of `/resize` and `/ephemeralcontainers` do not change.
const KEPT_METADATA: [&str; 6] = [
    "deletionTimestamp",
    "generation",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
];

/// The lists of container statuses.
const STATUS_LISTS: [&str; 3] = [
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
];

/// Fills in the fields of a status that are always encoded, and makes `podIP` and the first of `podIPs` equal.
pub(super) fn default_status(status: &mut Map) {
    let read = Cursor::root(status);
    let address = read.text("podIP");
    match read
        .list("podIPs")
        .first()
        .map(|first| first["ip"].as_str().unwrap_or_default())
    {
        // `podIP` takes precedence over a list that begins with a different address.
        Some(first) if address.is_empty() => {
            let first = first.to_owned();
            default_text(status, "podIP", &first);
        }
        first if !address.is_empty() && first != Some(address) => {
            let only = json!([{ "ip": address }]);
            status.insert("podIPs".into(), only);
        }
        _ => {}
    }
    for condition in items_mut(status, "conditions") {
        for time in ["lastProbeTime", "lastTransitionTime"] {
            default_value(condition, time, Value::Null);
        }
    }
    for list in STATUS_LISTS {
        for container in items_mut(status, list) {
            default_container_status(container);
        }
    }
}

fn default_container_status(container: &mut Map) {
    for field in ["name", "image", "imageID"] {
        default_text(container, field, "");
    }
    default_value(container, "ready", false);
    default_value(container, "restartCount", 0);
    for which in ["state", "lastState"] {
        let state = ensure_object(container, which);
        if let Some(running) = object_mut(state, "running") {
            default_value(running, "startedAt", Value::Null);
        }
        if let Some(terminated) = object_mut(state, "terminated") {
            default_value(terminated, "exitCode", 0);
            default_value(terminated, "startedAt", Value::Null);
            default_value(terminated, "finishedAt", Value::Null);
        }
    }
}

/// Sets the status of a new pod, completes its label selectors, and copies AppArmor profiles from annotations.
pub(super) fn prepare_created(pod: &mut Object, now: &str) {
    let read = Cursor::root(pod);
    let spec = read.at("spec");
    // `GetPodQOS` returns the class in the status of the request, if it is set.
    let quality = match read.text("status.qosClass") {
        "" => quality_of_service(&spec),
        given => given,
    };
    let mut status = json!({ "phase": "Pending", "qosClass": quality });
    if !spec.is_empty("schedulingGates") {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": null,
            "lastTransitionTime": now,
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    let has_selectors = spec.is_set("affinity") || spec.is_set("topologySpreadConstraints");
    let labels = read.map("metadata.labels").filter(|_| has_selectors).cloned();
    pod.insert("status".into(), status);
    if let (Some(labels), Some(spec)) = (labels, object_mut(pod, "spec")) {
        complete_selectors(spec, &labels);
    }
    let profiles = annotated_profiles(pod);
    if let Some(spec) = object_mut(pod, "spec") {
        for list in CONTAINER_LISTS {
            for container in items_mut(spec, list) {
                let profile = profiles.get(Cursor::root(container).text("name"));
                let Some((_, profile)) = profile.filter(|(_, it)| it.is_some()) else {
                    continue;
                };
                let context = ensure_object(container, "securityContext");
                default_value(context, "appArmorProfile", profile.clone());
            }
        }
    }
}

/// Returns warnings about AppArmor annotations of containers whose profile field is unset. The fields are filled in
/// later by [`prepare_created`].
pub(super) fn warn_of_app_armor(pod: &Object) -> Vec<String> {
    let profiles = annotated_profiles(pod);
    let pod = Cursor::root(pod);
    let spec = pod.at("spec");
    containers(&spec)
        .filter_map(|container| profiles.get(container.text("name")))
        .map(|(key, _)| {
            let path = FieldPath::new("metadata.annotations").key(key);
            format!("{path}: deprecated since v1.30; use the \"appArmorProfile\" field instead")
        })
        .collect()
}

/// Returns the AppArmor profiles that annotations define for containers without the profile field, by container name.
/// Each entry has the key of the annotation and the profile, which is `None` if the annotation is invalid. Annotations
/// that equal the field of the pod are omitted (`applyAppArmorVersionSkew`).
fn annotated_profiles(pod: &Object) -> BTreeMap<String, (String, Option<Value>)> {
    let pod = Cursor::root(pod);
    let (spec, annotations) = (pod.at("spec"), pod.at("metadata.annotations"));
    if !has_prefix(&annotations, APP_ARMOR) || spec.text("os.name") == "windows" {
        return BTreeMap::new();
    }
    let mut profiles = BTreeMap::new();
    let bare = containers(&spec).filter(|it| !it.is_set("securityContext.appArmorProfile"));
    for container in bare {
        let key = format!("{APP_ARMOR}{}", container.text("name"));
        let annotation = annotations.entry(&key);
        if !annotation.is_set("") {
            continue;
        }
        let profile = app_armor_profile(annotation.as_text()).filter(is_right_profile);
        if profile.is_some() && spec.get("securityContext.appArmorProfile") == profile.as_ref() {
            continue;
        }
        profiles.insert(container.text("name").to_owned(), (key.clone(), profile));
    }
    profiles
}

fn is_right_profile(profile: &Value) -> bool {
    let mut errors = FieldErrors::new();
    validate_app_armor_profile(&Cursor::value_at(Some(profile), &FieldPath::root()), &mut errors);
    errors.is_empty()
}

/// For each key in `matchLabelKeys` and `mismatchLabelKeys`, adds a requirement for the pod's label to the label
/// selector of the same term.
fn complete_selectors(spec: &mut Map, labels: &Map) {
    for constraint in items_mut(spec, "topologySpreadConstraints") {
        add_label_keys(constraint, "matchLabelKeys", "In", labels);
    }
    for kind in ["affinity.podAffinity", "affinity.podAntiAffinity"] {
        let Some(affinity) = object_mut(spec, kind) else {
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

fn add_label_keys(term: &mut Map, keys: &str, operator: &str, labels: &Map) {
    let added: Vec<Value> = Cursor::root(term)
        .texts(keys)
        .filter_map(|key| {
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
    default_value(selector, "matchExpressions", Vec::<Value>::new());
    if let Some(expressions) = selector.get_mut("matchExpressions").and_then(Value::as_array_mut) {
        expressions.extend(added);
    }
}

/// Status field that depends on the gate DRANodeAllocatableResources.
const ALLOCATABLE: &str = "nodeAllocatableResourceClaimStatuses";

/// Field in the status of a volume mount that depends on the gate ImageVolumeWithDigest.
const VOLUME_STATUS: &str = "volumeStatus";

fn has_volume_status(status: &Cursor<'_>) -> bool {
    let mut containers = STATUS_LISTS.into_iter().flat_map(|list| status.items(list));
    containers.any(|it| it.items("volumeMounts").any(|mount| mount.is_set(VOLUME_STATUS)))
}

/// Restores the fields that a write of `/status` may omit, and drops fields that depend on disabled gates.
pub(super) fn prepare_status(pod: &mut Object, old: &Object) {
    if let Some(old_meta) = old.metadata() {
        copy_field(old_meta, pod.metadata_mut(), "ownerReferences");
    }
    let status = ensure_object(pod, "status");
    let Some(old_status) = Cursor::root(old).map("status") else {
        return;
    };
    let read_old = Cursor::root(old_status);
    if read_old.is_empty(ALLOCATABLE) {
        status.remove(ALLOCATABLE);
    }
    if !has_volume_status(&read_old) {
        for list in STATUS_LISTS {
            for mount in items_mut(status, list).flat_map(|it| items_mut(it, "volumeMounts")) {
                mount.remove(VOLUME_STATUS);
            }
        }
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
    let mut left: BTreeMap<&str, VecDeque<&Map>> = BTreeMap::new();
    for old in read_old.list("conditions").iter().filter_map(Value::as_object) {
        left.entry(Cursor::root(old).text("type")).or_default().push_back(old);
    }
    for condition in items_mut(status, "conditions") {
        let read = Cursor::root(condition);
        let Some(old) = left.get_mut(read.text("type")).and_then(VecDeque::pop_front) else {
            continue;
        };
        if read.integer("observedGeneration").unwrap_or(0) == 0 {
            copy_field(old, condition, "observedGeneration");
        }
    }
}

/// Restores all fields except `spec.ephemeralContainers`.
pub(super) fn keep_ephemeral_containers_only(pod: &mut Object, old: &Object) {
    let wanted = Cursor::root(pod).get("spec.ephemeralContainers").cloned();
    restore(pod, old);
    let spec = ensure_object(pod, "spec");
    match wanted {
        Some(containers) => spec.insert("ephemeralContainers".into(), containers),
        None => spec.remove("ephemeralContainers"),
    };
}

/// Restores all fields except the resources and resize policies of containers, and the pod-level resources. If
/// containers are added, removed, renamed or moved, nothing is restored, because validation refuses the update.
pub(super) fn keep_resources_only(pod: &mut Object, old: &Object) {
    let lists = ["containers", "initContainers"];
    let (new, was) = (Cursor::root(pod), Cursor::root(old));
    let (spec, old_spec) = (new.at("spec"), was.at("spec"));
    let has_moved = |list: &&str| {
        let names = spec.items(list).map(|it| it.text("name"));
        !names.eq(old_spec.items(list).map(|it| it.text("name")))
    };
    if lists.iter().any(has_moved) {
        return;
    }
    let wanted = spec.map("").cloned().unwrap_or_default();
    restore(pod, old);
    let Some(spec) = object_mut(pod, "spec") else {
        return;
    };
    copy_field(&wanted, spec, "resources");
    for list in lists {
        let asked = Cursor::root(&wanted).list(list).iter().filter_map(Value::as_object);
        for (container, asked) in items_mut(spec, list).zip(asked) {
            copy_field(asked, container, "resources");
            copy_field(asked, container, "resizePolicy");
        }
    }
}

fn restore(pod: &mut Object, old: &Object) {
    copy_field(old, pod, "spec");
    copy_field(old, pod, "status");
    let Some(old_meta) = old.metadata() else {
        return;
    };
    for field in KEPT_METADATA {
        copy_field(old_meta, pod.metadata_mut(), field);
    }
}
