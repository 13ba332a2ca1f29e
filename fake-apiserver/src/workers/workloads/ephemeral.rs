//! Creates the PersistentVolumeClaims of generic ephemeral volumes (`pkg/controller/volume/ephemeral`). The garbage
//! collector deletes them with their Pods.

use super::cluster::Cluster;
use super::controller::Changed;
use super::plan::{Plan, controller_reference};
use super::pod_claims::{claims, ephemeral_claim, foreign};
use super::resource::{Resource, key_of};
use super::sees::Sees;
use crate::api::json::{Map, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;

/// The service account of the controller.
pub(crate) const ACCOUNT: &str = "ephemeral-volume-controller";
const COMPONENT: &str = "ephemeral_volume";

/// Enqueues the Pods that use a deleted claim.
pub(crate) fn concerns(change: &Changed<'_>, cluster: &Cluster, add: &mut dyn FnMut(Key)) {
    if change.resource != Resource::PersistentVolumeClaim || change.new.is_some() {
        return;
    }
    let pods = cluster.within(Resource::Pod, change.key.namespace());
    let users = pods.filter(|pod| claims(pod).iter().any(|it| it == change.key.name()));
    users.for_each(|it| add(key_of(it)));
}

/// Returns `true` if a Pod has ephemeral volumes.
pub(crate) fn has_volumes(pod: &Object) -> bool {
    let mut volumes = Cursor::root(pod).maps("spec.volumes");
    volumes.any(|it| Cursor::root(it).map("ephemeral").is_some())
}

/// Plans the creation of the missing claims of a Pod.
pub(crate) fn sync(pod: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    if pod.is_terminating() {
        return plan;
    }
    for volume in Cursor::root(pod).maps("spec.volumes") {
        let Some(name) = ephemeral_claim(pod, volume) else {
            continue;
        };
        match sees
            .cluster
            .find(Resource::PersistentVolumeClaim, pod.namespace(), &name)
        {
            None => create(pod, volume, &name, &mut plan),
            Some(claim) => {
                if let Some(why) = foreign(pod, claim) {
                    let message = format!("ephemeral volume {}: {why}", Cursor::root(volume).text("name"));
                    plan.warn((Resource::Pod, pod), COMPONENT, "FailedBinding", message);
                    return plan;
                }
            }
        }
    }
    plan
}

fn create(pod: &Object, volume: &Map, name: &str, plan: &mut Plan) {
    let template = Cursor::root(volume).map_or_empty("ephemeral.volumeClaimTemplate");
    let template = Cursor::root(template);
    let mut metadata = json!({
        "name": name, "namespace": pod.namespace(), "ownerReferences": [controller_reference(Resource::Pod, pod)],
    });
    for field in ["annotations", "labels"] {
        let values = template.map_or_empty(&format!("metadata.{field}"));
        if !values.is_empty() {
            metadata[field] = values.clone().into();
        }
    }
    let claim = json!({"metadata": metadata, "spec": template.map_or_empty("spec")});
    plan.create(Resource::PersistentVolumeClaim, claim);
}
