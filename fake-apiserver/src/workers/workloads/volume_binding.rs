//! The claims of unscheduled Pods (`VolumeBinding` of the scheduler): refuses Pods with unusable claims and nodes on
//! which their volumes are not usable, and selects the node for claims that wait for a consumer.

use std::sync::Arc;

use super::plan::Plan;
use super::pod_claims::{claims, ephemeral_claim, foreign, named_claim};
use super::pods::annotation;
use super::resource::Resource;
use super::sees::Sees;
use super::volume_match::{fitting_volume, is_usable_on};
use super::volumes::{NO_PROVISIONER, SELECTED_NODE, class, waits_for_consumer};
use crate::api::json::json;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;

const OTHER_NODE: &str = "node(s) didn't match PersistentVolume's node affinity";
const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
const LOST_VOLUME: &str = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";

fn is_bound(claim: &Object) -> bool {
    Cursor::root(claim).text("status.phase") == "Bound"
}

/// Returns `true` if a claim is not bound, because it waits for the selection of a node.
fn waits(claim: &Object, sees: &Sees<'_>) -> bool {
    !is_bound(claim) && waits_for_consumer(claim, sees) && Cursor::root(claim).is_empty("spec.volumeName")
}

/// Returns the existing claims of a Pod.
pub(crate) fn existing<'a>(pod: &Object, sees: &Sees<'a>) -> Vec<&'a Arc<Object>> {
    let find = |name: String| {
        sees.cluster
            .find(Resource::PersistentVolumeClaim, pod.namespace(), &name)
    };
    claims(pod).into_iter().filter_map(find).collect()
}

/// Returns the reason if a Pod cannot be scheduled to any node because of its claims (`PreFilter`).
pub(crate) fn unusable(pod: &Object, sees: &Sees<'_>) -> Option<String> {
    for volume in Cursor::root(pod).maps("spec.volumes") {
        let of_pod = ephemeral_claim(pod, volume);
        let is_ephemeral = of_pod.is_some();
        let Some(name) = named_claim(volume).or(of_pod) else {
            continue;
        };
        let found = sees
            .cluster
            .find(Resource::PersistentVolumeClaim, pod.namespace(), &name);
        let Some(claim) = found else {
            return Some(match is_ephemeral {
                true => format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"),
                false => format!("persistentvolumeclaim {name:?} not found"),
            });
        };
        if Cursor::root(claim).text("status.phase") == "Lost" {
            let volume = Cursor::root(claim).text("spec.volumeName");
            return Some(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
            ));
        }
        if claim.is_terminating() {
            return Some(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        if let Some(why) = foreign(pod, claim).filter(|_| is_ephemeral) {
            return Some(why);
        }
    }
    let claims = existing(pod, sees);
    let is_immediate = |it: &&Arc<Object>| !is_bound(it) && !waits(it, sees);
    let why = "pod has unbound immediate PersistentVolumeClaims";
    claims.iter().any(is_immediate).then(|| why.to_owned())
}

/// Returns the reasons why the claims of a Pod cannot be used on a node (`Filter`).
pub(crate) fn refusals(claims: &[&Arc<Object>], node: &Object, sees: &Sees<'_>) -> Vec<String> {
    let (mut is_elsewhere, mut is_missing, mut is_lost) = (false, false, false);
    for claim in claims {
        let volume = Cursor::root(claim).text("spec.volumeName");
        if is_bound(claim) && !volume.is_empty() {
            match sees.cluster.find(Resource::PersistentVolume, "", volume) {
                Some(volume) => is_elsewhere |= !is_usable_on(volume, node),
                None => is_lost = true,
            }
        } else if waits(claim, sees) {
            is_missing |= !may_bind_on(claim, node, sees);
        }
    }
    let reasons = [
        (is_elsewhere, OTHER_NODE),
        (is_missing, NO_VOLUME),
        (is_lost, LOST_VOLUME),
    ];
    reasons
        .into_iter()
        .filter(|(holds, _)| *holds)
        .map(|(_, why)| why.to_owned())
        .collect()
}

/// Returns `true` if a claim that waits for a consumer may be bound to a volume on a node.
fn may_bind_on(claim: &Object, node: &Object, sees: &Sees<'_>) -> bool {
    if let Some(selected) = annotation(claim, SELECTED_NODE) {
        return selected == node.name();
    }
    let provisioner = class(claim, sees).map_or("", |it| Cursor::root(it).text("provisioner"));
    provisioner != NO_PROVISIONER || fitting_volume(claim, Some(node), sees).is_some()
}

/// Plans the annotation that assigns each unbound claim to the node. Returns `true` if all claims of the Pod are bound.
pub(crate) fn bind(pod: &Object, node: &str, sees: &Sees<'_>, plan: &mut Plan) -> bool {
    let claims = existing(pod, sees);
    for claim in claims.iter().filter(|it| !is_bound(it)) {
        if annotation(claim, SELECTED_NODE).is_none() {
            let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
            plan.merge(Resource::PersistentVolumeClaim, claim, patch);
        }
    }
    claims.iter().all(|it| is_bound(it))
}
