//! PersistentVolumeClaims and PersistentVolumes: binds each claim to a matching volume, or to a new one.

use std::sync::Arc;

use super::cluster::Cluster;
use super::controller::{Changed, WorkloadController};
use super::ephemeral;
use super::plan::{Plan, Write};
use super::pod_claims::{claims, is_shut_down, protects};
use super::pods::{annotation, is_finished, spec, status};
use super::resource::{Resource, Target, key_of};
use super::sees::Sees;
use super::volume_match::{class_of, fitting_volume, is_for, mismatch, requested};
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::names;
use crate::registry::types::quantity::Quantity;
use crate::storage::Key;
use crate::workers::WorkerRow;

/// The annotation with the selected node on a claim that waits for its first consumer.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "volumes",
    &[
        WorkloadController {
            is_relevant: |change| change.new.is_some_and(ephemeral::has_volumes),
            concerns: ephemeral::concerns,
            ..WorkloadController::new(Resource::Pod, ephemeral::ACCOUNT, ephemeral::sync)
        },
        WorkloadController {
            concerns: claims_concerned,
            ..WorkloadController::new(Resource::PersistentVolumeClaim, BINDER, |claim, sees| {
                let mut plan = Plan::default();
                sync_claim(claim, sees, &mut plan);
                plan
            })
        },
        WorkloadController {
            concerns: volumes_concerned,
            ..WorkloadController::new(Resource::PersistentVolume, BINDER, |volume, sees| {
                let mut plan = Plan::default();
                sync_volume(volume, sees, &mut plan);
                plan
            })
        },
        WorkloadController {
            concerns: attributes_concerned,
            ..WorkloadController::new(Resource::VolumeAttributesClass, PROTECTOR, |class, sees| {
                let mut plan = Plan::default();
                sync_attributes(class, sees, &mut plan);
                plan
            })
        },
    ],
);

/// The service account of the controller that binds claims.
const BINDER: &str = "persistent-volume-binder";

/// The service account of the controller that protects VolumeAttributesClasses in use.
const PROTECTOR: &str = "volumeattributesclass-protection-controller";

/// The service accounts of the controllers that maintain the finalizers of claims and volumes.
const CLAIM_PROTECTOR: &str = "pvc-protection-controller";
const VOLUME_PROTECTOR: &str = "pv-protection-controller";

const COMPONENT: &str = "persistentvolume-controller";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const BETA_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
const DEFAULT_CLASS: [&str; 2] = [
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
];
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
const ATTRIBUTES_FINALIZER: &str = "kubernetes.io/vac-protection";
/// Fields of claims and volumes that name a VolumeAttributesClass.
const ATTRIBUTES_NAMES: [&str; 3] = [
    "spec.volumeAttributesClassName",
    "status.currentVolumeAttributesClassName",
    "status.modifyVolumeStatus.targetVolumeAttributesClassName",
];
/// Provisioner of a class without dynamic provisioning.
pub(crate) const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// Enqueues the claims that a change of a class, a volume or a Pod affects.
fn claims_concerned(change: &Changed<'_>, cluster: &Cluster, add: &mut dyn FnMut(Key)) {
    match change.resource {
        Resource::StorageClass => cluster
            .all(Resource::PersistentVolumeClaim)
            .for_each(|it| add(key_of(it))),
        Resource::PersistentVolume => {
            for volume in change.versions() {
                if let Some(claim) = Cursor::root(spec(volume)).map("claimRef").map(Cursor::root) {
                    add(Key::new(claim.text("namespace"), claim.text("name")));
                }
            }
            let is_free = |it: &Object| Cursor::root(it).text("status.phase") == "Available";
            if change.new.is_some_and(is_free) {
                let unbound = |it: &&Arc<Object>| Cursor::root(it).text("spec.volumeName").is_empty();
                let claims = cluster.all(Resource::PersistentVolumeClaim).filter(unbound);
                claims.for_each(|it| add(key_of(it)));
            }
        }
        // The claims of a stopped or removed Pod may no longer be in use, so that they can be deleted.
        Resource::Pod if change.new.is_none_or(is_shut_down) => {
            for claim in change.old.map(claims).unwrap_or_default() {
                add(Key::new(change.key.namespace(), &claim));
            }
        }
        _ => {}
    }
}

/// Enqueues the volumes that a claim refers to.
fn volumes_concerned(change: &Changed<'_>, _: &Cluster, add: &mut dyn FnMut(Key)) {
    if change.resource == Resource::PersistentVolumeClaim {
        let names = change.versions().map(|it| Cursor::root(it).text("spec.volumeName"));
        names.filter(|it| !it.is_empty()).for_each(|it| add(Key::new("", it)));
    }
}

/// Enqueues the VolumeAttributesClasses that a claim or a volume refers to.
fn attributes_concerned(change: &Changed<'_>, _: &Cluster, add: &mut dyn FnMut(Key)) {
    if matches!(
        change.resource,
        Resource::PersistentVolumeClaim | Resource::PersistentVolume
    ) {
        let names = change.versions().flat_map(attributes_of);
        names.for_each(|it| add(Key::new("", it)));
    }
}

/// Returns the names of the VolumeAttributesClasses of a claim or a volume.
fn attributes_of(object: &Object) -> impl Iterator<Item = &str> {
    let names = ATTRIBUTES_NAMES.iter().map(|path| Cursor::root(object).text(path));
    names.filter(|it| !it.is_empty())
}

/// Removes the finalizer of a deleted VolumeAttributesClass when claims and volumes no longer refer to it.
fn sync_attributes(class: &Object, sees: &Sees<'_>, plan: &mut Plan) {
    let users = [Resource::PersistentVolumeClaim, Resource::PersistentVolume];
    let mut users = users.into_iter().flat_map(|resource| sees.cluster.all(resource));
    let is_used = |user: &Arc<Object>| attributes_of(user).any(|it| it == class.name());
    if class.is_terminating() && !users.any(is_used) {
        release(Resource::VolumeAttributesClass, class, ATTRIBUTES_FINALIZER, plan);
    }
}

pub(crate) fn class<'a>(claim: &Object, sees: &Sees<'a>) -> Option<&'a Arc<Object>> {
    sees.cluster.find(Resource::StorageClass, "", class_of(claim))
}

/// Returns `true` if a claim is only bound after a Pod that uses it was assigned to a node.
pub(crate) fn waits_for_consumer(claim: &Object, sees: &Sees<'_>) -> bool {
    class(claim, sees).is_some_and(|class| Cursor::root(class).text("volumeBindingMode") == "WaitForFirstConsumer")
}

/// Removes a finalizer from an object.
pub(crate) fn release(resource: Resource, object: &Object, finalizer: &str, plan: &mut Plan) {
    if object.finalizers().any(|it| it == finalizer) {
        let left: Vec<&str> = object.finalizers().filter(|it| *it != finalizer).collect();
        let left = if left.is_empty() { Value::Null } else { json!(left) };
        plan.merge(resource, object, json!({"metadata": {"finalizers": left}}));
    }
}

/// Adds a finalizer to an object that lacks it.
fn protect(resource: Resource, object: &Object, finalizer: &str, plan: &mut Plan) {
    if object.finalizers().all(|it| it != finalizer) {
        let all: Vec<&str> = object.finalizers().chain([finalizer]).collect();
        plan.merge(resource, object, json!({"metadata": {"finalizers": all}}));
    }
}

fn sync_claim(claim: &Object, sees: &Sees<'_>, plan: &mut Plan) {
    let resource = Resource::PersistentVolumeClaim;
    if claim.is_terminating() {
        let mut pods = sees.cluster.within(Resource::Pod, claim.namespace());
        if !pods.any(|pod| protects(pod, claim)) {
            plan.send_as(CLAIM_PROTECTOR, |plan| release(resource, claim, CLAIM_FINALIZER, plan));
        }
        return;
    }
    plan.send_as(CLAIM_PROTECTOR, |plan| protect(resource, claim, CLAIM_FINALIZER, plan));
    let name = Cursor::root(claim).text("spec.volumeName");
    let was_bound = annotation(claim, BIND_COMPLETED).is_some();
    let volume = sees.cluster.find(Resource::PersistentVolume, "", name);
    match (was_bound, volume) {
        (true, None) => {
            let what = if name.is_empty() {
                "reference to PersistentVolume"
            } else {
                "its PersistentVolume"
            };
            let message = format!("Bound claim has lost {what}. Data on the volume is lost!");
            lose(claim, "ClaimLost", message, plan);
        }
        (false, None) if name.is_empty() => bind(claim, sees, plan),
        (false, None) => put_phase(claim, "Pending", plan),
        (true, Some(volume)) => keep(claim, volume, sees, plan),
        (false, Some(volume)) => bind_requested(claim, volume, sees, plan),
    }
}

/// Sets the phase of a claim without a volume.
fn put_phase(claim: &Object, phase: &str, plan: &mut Plan) {
    let mut next = status(claim).clone();
    for field in ["accessModes", "capacity", "currentVolumeAttributesClassName"] {
        next.remove(field);
    }
    next.insert("phase".into(), phase.into());
    plan.status(Resource::PersistentVolumeClaim, claim, next);
}

/// Records that a bound claim has lost its volume.
fn lose(claim: &Object, reason: &'static str, message: String, plan: &mut Plan) {
    if Cursor::root(claim).text("status.phase") != "Lost" {
        put_phase(claim, "Lost", plan);
        plan.warn((Resource::PersistentVolumeClaim, claim), COMPONENT, reason, message);
    }
}

/// Plans the work for a claim that is bound to a volume (Go's `syncBoundClaim`).
fn keep(claim: &Object, volume: &Object, sees: &Sees<'_>, plan: &mut Plan) {
    let reference = Cursor::root(volume).map_or_empty("spec.claimRef");
    if reference.is_empty() {
        return refer(volume, claim, plan);
    }
    let uid = Cursor::root(reference).text("uid");
    if !is_for(reference, claim) {
        let message = "Two claims are bound to the same volume, this one is bound incorrectly";
        return lose(claim, "ClaimMisbound", message.to_owned(), plan);
    }
    if uid.is_empty() {
        refer(volume, claim, plan);
    }
    complete(claim, volume, sees, plan);
}

/// Plans the work for a claim that is not bound yet and names a volume (Go's `syncUnboundClaim`).
fn bind_requested(claim: &Object, volume: &Object, sees: &Sees<'_>, plan: &mut Plan) {
    let about = (Resource::PersistentVolumeClaim, claim);
    let reference = Cursor::root(volume).map_or_empty("spec.claimRef");
    if !reference.is_empty() && is_for(reference, claim) {
        if Cursor::root(reference).text("uid") != claim.uid() {
            refer(volume, claim, plan);
        }
        return complete(claim, volume, sees, plan);
    }
    if !reference.is_empty() {
        let message = format!("volume {:?} already bound to a different claim.", volume.name());
        plan.warn(about, COMPONENT, "FailedBinding", message);
    } else if let Some(why) = mismatch(volume, claim) {
        let message = format!("Cannot bind to requested volume {:?}: {why}", volume.name());
        plan.warn(about, COMPONENT, "VolumeMismatch", message);
    } else {
        return refer(volume, claim, plan);
    }
    put_phase(claim, "Pending", plan);
}

/// Completes the binding of a claim, and updates its status from the volume.
fn complete(claim: &Object, volume: &Object, sees: &Sees<'_>, plan: &mut Plan) {
    let resource = Resource::PersistentVolumeClaim;
    if annotation(claim, BIND_COMPLETED).is_none() {
        let patch = json!({"metadata": {"annotations": {BIND_COMPLETED: "yes"}}});
        plan.merge(resource, claim, patch);
    }
    expand(claim, volume, sees, plan);
    let mut next = status(claim).clone();
    next.insert("phase".into(), "Bound".into());
    let fields = [
        ("accessModes", "accessModes"),
        ("capacity", "capacity"),
        ("volumeAttributesClassName", "currentVolumeAttributesClassName"),
    ];
    for (from, to) in fields {
        match spec(volume).get(from) {
            Some(value) => drop(next.insert(to.into(), value.clone())),
            None => drop(next.remove(to)),
        }
    }
    plan.status(resource, claim, next);
}

/// Plans to resize a volume to the size that its claim requests, like the external resizer, and to write an Event about
/// it.
fn expand(claim: &Object, volume: &Object, sees: &Sees<'_>, plan: &mut Plan) {
    let allowed = class(claim, sees).is_some_and(|it| Cursor::root(it).flag("allowVolumeExpansion") == Some(true));
    let has = Quantity::parse(Cursor::root(volume).text("spec.capacity.storage")).ok();
    if !allowed || requested(claim) <= has || has.is_none() {
        return;
    }
    let requests = Cursor::root(claim).map_or_empty("spec.resources.requests");
    let size = Cursor::root(requests).text("storage");
    let patch = json!({"spec": {"capacity": {"storage": size}}});
    plan.merge(Resource::PersistentVolume, volume, patch);
    let message = "external resizer is resizing volume ".to_owned() + volume.name();
    plan.note((Resource::PersistentVolumeClaim, claim), COMPONENT, "Resizing", message);
}

/// Reserves a volume for a claim. Sets `pv.kubernetes.io/bound-by-controller`, unless the user has already reserved the
/// volume for this claim.
fn refer(volume: &Object, claim: &Object, plan: &mut Plan) {
    let reference = Cursor::root(volume).map_or_empty("spec.claimRef");
    let mut patch = json!({"spec": {"claimRef": reference_to(claim)}});
    if reference.is_empty() || !is_for(reference, claim) {
        patch["metadata"] = json!({"annotations": {BOUND_BY: "yes"}});
    }
    plan.merge(Resource::PersistentVolume, volume, patch);
}

fn reference_to(claim: &Object) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace(), "name": claim.name(),
        "uid": claim.uid(), "resourceVersion": claim.meta_str("resourceVersion"),
    })
}

/// Finds or creates a volume for a claim without a volume name.
fn bind(claim: &Object, sees: &Sees<'_>, plan: &mut Plan) {
    let resource = Resource::PersistentVolumeClaim;
    let selected = annotation(claim, SELECTED_NODE);
    let waits = waits_for_consumer(claim, sees) && selected.is_none();
    let node = selected.and_then(|it| sees.cluster.find(Resource::Node, "", it));
    let fitting = fitting_volume(claim, node.map(|it| &**it), sees);
    if let Some(volume) = fitting.filter(|it| !waits || is_for(Cursor::root(it).map_or_empty("spec.claimRef"), claim)) {
        if Cursor::root(volume).text("spec.claimRef.uid") != claim.uid() {
            refer(volume, claim, plan);
        }
        let annotations = json!({BIND_COMPLETED: "yes", BOUND_BY: "yes"});
        let patch = json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": volume.name()}});
        return plan.merge(resource, claim, patch);
    }
    if !Cursor::root(claim).is_set("spec.storageClassName")
        && let Some(name) = default_class(sees)
    {
        return plan.merge(resource, claim, json!({"spec": {"storageClassName": name}}));
    }
    put_phase(claim, "Pending", plan);
    let about = (resource, claim);
    if waits {
        let (reason, message) = waiting(claim, sees);
        return plan.note(about, COMPONENT, reason, message);
    }
    match (class_of(claim), class(claim, sees)) {
        ("", _) => {
            let message = "no persistent volumes available for this claim and no storage class is set".to_owned();
            plan.note(about, COMPONENT, "FailedBinding", message);
        }
        (name, None) => {
            let message = format!("storageclass.storage.k8s.io \"{name}\" not found");
            plan.warn(about, COMPONENT, "ProvisioningFailed", message);
        }
        (_, Some(class)) if Cursor::root(class).text("provisioner") == NO_PROVISIONER => {
            let message = format!("no volume plugin matched name: {NO_PROVISIONER}");
            plan.warn(about, COMPONENT, "ProvisioningFailed", message);
        }
        (_, Some(class)) => provision(claim, class, sees, plan),
    }
}

/// Returns the Event for a claim that waits for a Pod, or for the node of a Pod.
fn waiting(claim: &Object, sees: &Sees<'_>) -> (&'static str, String) {
    let uses = |pod: &&Arc<Object>| {
        let is_unscheduled = Cursor::root(pod).text("spec.nodeName").is_empty() && !is_finished(pod);
        is_unscheduled && claims(pod).iter().any(|it| it == claim.name())
    };
    let pods = sees.cluster.within(Resource::Pod, claim.namespace()).filter(uses);
    let pods: Vec<&str> = pods.map(|it| it.name()).collect();
    match pods.as_slice() {
        [] => (
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding".to_owned(),
        ),
        [one] => ("WaitForPodScheduled", format!("waiting for pod {one} to be scheduled")),
        [_, _, ..] => (
            "WaitForPodScheduled",
            format!("waiting for pods {} to be scheduled", pods.join(",")),
        ),
    }
}

/// Returns the newest class that is marked as the default.
fn default_class(sees: &Sees<'_>) -> Option<String> {
    let classes = sees.cluster.all(Resource::StorageClass);
    let is_default = |it: &&Arc<Object>| DEFAULT_CLASS.iter().any(|name| annotation(it, name) == Some("true"));
    let defaults = classes.filter(is_default);
    defaults
        .max_by_key(|it| (super::pods::created(it), std::cmp::Reverse(it.name().to_owned())))
        .map(|it| it.name().to_owned())
}

/// Creates a volume like a provisioner.
fn provision(claim: &Object, class: &Object, sees: &Sees<'_>, plan: &mut Plan) {
    let provisioner = Cursor::root(class).text("provisioner");
    let name = format!("pvc-{}", claim.uid());
    if sees.cluster.find(Resource::PersistentVolume, "", &name).is_some() {
        return;
    }
    let requests = Cursor::root(claim).map_or_empty("spec.resources.requests");
    let reclaim = match Cursor::root(class).text("reclaimPolicy") {
        "" => "Delete",
        policy => policy,
    };
    let mut volume = json!({
        "metadata": {
            "name": name, "annotations": {PROVISIONED_BY: provisioner}, "finalizers": [VOLUME_FINALIZER],
        },
        "spec": {
            "capacity": {"storage": Cursor::root(requests).text("storage")}, "accessModes": Cursor::root(claim).list("spec.accessModes"),
            "claimRef": reference_to(claim), "persistentVolumeReclaimPolicy": reclaim,
            "storageClassName": class.name(), "volumeMode": spec(claim).get("volumeMode").cloned().unwrap_or("Filesystem".into()),
        },
    });
    // A provisioner with a slash in its name is not a CSI driver; its volumes are directories on a Node.
    let (source, of_it) = match names::dns1123_subdomain(provisioner, false).is_empty() {
        true => ("csi", json!({"driver": provisioner, "volumeHandle": name})),
        false => ("hostPath", json!({"path": format!("/var/lib/volumes/{name}")})),
    };
    volume["spec"][source] = of_it;
    let patch = json!({"metadata": {"annotations": {PROVISIONER: provisioner, BETA_PROVISIONER: provisioner}}});
    if annotation(claim, PROVISIONER).is_none() {
        plan.merge(Resource::PersistentVolumeClaim, claim, patch);
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system \
         administrator. If volume creation is delayed, please verify that the provisioner is running and correctly \
         registered."
    );
    let about = (Resource::PersistentVolumeClaim, claim);
    plan.note(about, COMPONENT, "ExternalProvisioning", message);
    plan.create(Resource::PersistentVolume, volume);
    let message = format!("Successfully provisioned volume {name}");
    plan.note(
        (Resource::PersistentVolumeClaim, claim),
        COMPONENT,
        "ProvisioningSucceeded",
        message,
    );
}

fn sync_volume(volume: &Object, sees: &Sees<'_>, plan: &mut Plan) {
    let resource = Resource::PersistentVolume;
    let reference = Cursor::root(volume).map_or_empty("spec.claimRef");
    let claim = sees.cluster.find(
        Resource::PersistentVolumeClaim,
        Cursor::root(reference).text("namespace"),
        Cursor::root(reference).text("name"),
    );
    let claim = claim.filter(|it| is_for(reference, it));
    if volume.is_terminating() {
        if claim.is_none_or(|it| Cursor::root(it).text("spec.volumeName") != volume.name()) {
            plan.send_as(VOLUME_PROTECTOR, |plan| {
                release(resource, volume, VOLUME_FINALIZER, plan)
            });
        }
        return;
    }
    plan.send_as(VOLUME_PROTECTOR, |plan| {
        protect(resource, volume, VOLUME_FINALIZER, plan)
    });
    let is_reserved = !Cursor::root(reference).is_empty("uid");
    let phase = match (claim, is_reserved) {
        _ if reference.is_empty() => "Available",
        (Some(claim), _) if Cursor::root(claim).text("spec.volumeName") == volume.name() => "Bound",
        (None, true) => "Released",
        // A volume provisioned for one claim is not available to other claims.
        (Some(_), true) => "Pending",
        (Some(_) | None, false) => "Available",
    };
    let had = Cursor::root(volume).text("status.phase");
    if had != phase {
        let mut next = status(volume).clone();
        next.insert("phase".into(), phase.into());
        next.insert("lastPhaseTransitionTime".into(), sees.stamp().into());
        plan.status(resource, volume, next);
    }
    if phase == "Released" && Cursor::root(volume).text("spec.persistentVolumeReclaimPolicy") == "Delete" {
        plan.writes.push(Write::Delete {
            at: Target::of(resource, volume),
            grace: None,
            propagation: None,
            told: None,
        });
    }
}
