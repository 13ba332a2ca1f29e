//! Deletes Pods that no kubelet can terminate (`pkg/controller/podgc`): Pods of a deleted Node, terminating Pods of a
//! Node that is out of service, and terminating Pods without a Node. The number of finished Pods is not limited.

use super::cluster::Cluster;
use super::controller::{Changed, Sync, WorkloadController};
use super::kubelet::Nodes;
use super::node_lifecycle::ready;
use super::plan::{Plan, Write};
use super::pods::{generation, is_finished, plus, status};
use super::resource::{Resource, Target, key_of};
use super::sees::{Sees, conditions, put_condition};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;
use crate::workers::WorkerRow;

/// Seconds between the deletion of a Node and the deletion of its Pods.
const QUARANTINE: i64 = 40;

/// Taint that an administrator adds to a Node that was shut down.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "podgc",
    &[WorkloadController {
        sync: Sync::Nodes(sync),
        concerns,
        ..WorkloadController::new(Resource::Pod, "pod-garbage-collector", |_, _| Plan::EMPTY)
    }],
);

/// Enqueues the Pods of a Node that was created, deleted, taken out of service or returned to service.
fn concerns(change: &Changed<'_>, cluster: &Cluster, add: &mut dyn FnMut(Key)) {
    if change.resource != Resource::Node || change.old.map(is_out_of_service) == change.new.map(is_out_of_service) {
        return;
    }
    let pods = cluster.all(Resource::Pod);
    let there = pods.filter(|it| Cursor::root(it).text("spec.nodeName") == change.key.name());
    there.for_each(|it| add(key_of(it)));
}

fn is_out_of_service(node: &Object) -> bool {
    let mut taints = Cursor::root(node).maps("spec.taints");
    ready(node) != "True" && taints.any(|it| Cursor::root(it).text("key") == OUT_OF_SERVICE)
}

fn sync(pod: &Object, sees: &Sees<'_>, nodes: &mut Nodes) -> Plan {
    let mut plan = Plan::default();
    let name = Cursor::root(pod).text("spec.nodeName");
    let node = sees.cluster.find(Resource::Node, "", name);
    match node {
        _ if name.is_empty() => {
            if pod.is_terminating() {
                collect(pod, None, &mut plan);
            }
        }
        Some(node) => {
            nodes.orphaned(pod, true, sees.now);
            if pod.is_terminating() && is_out_of_service(node) {
                collect(pod, None, &mut plan);
            }
        }
        None => match nodes.orphaned(pod, false, sees.now).map(|it| plus(it, QUARANTINE)) {
            Some(due) if due > sees.now => plan.look_again(due),
            Some(_) => {
                let condition = json!({
                    "type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
                    "lastTransitionTime": sees.stamp(), "reason": "DeletionByPodGC",
                    "message": "PodGC: node no longer exists", "observedGeneration": generation(pod),
                });
                collect(pod, condition.as_object(), &mut plan);
            }
            None => {}
        },
    }
    plan
}

/// Adds the writes to the plan that mark a Pod as failed and delete it.
fn collect(pod: &Object, condition: Option<&Map>, plan: &mut Plan) {
    if !is_finished(pod) {
        let mut next = Map::new();
        next.insert("phase".into(), "Failed".into());
        next.insert("observedGeneration".into(), generation(pod).into());
        if let Some(condition) = condition {
            let mut list = conditions(status(pod));
            put_condition(&mut list, condition.clone());
            next.insert("conditions".into(), list.into());
        }
        plan.merge_status(Resource::Pod, pod, json!({"status": Value::Object(next)}));
    }
    let grace = pod
        .metadata()
        .and_then(|it| Cursor::root(it).integer("deletionGracePeriodSeconds"));
    if !pod.is_terminating() || grace != Some(0) {
        plan.writes.push(Write::Delete {
            at: Target::of(Resource::Pod, pod),
            grace: Some(0),
            propagation: None,
            told: None,
        });
    }
}
