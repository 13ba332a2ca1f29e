//! Taints Nodes that are not ready, lost or under pressure, and evicts Pods that do not tolerate the taints
//! (`node_lifecycle_controller.go` and the taint eviction controller).
//!
//! A Node is lost if its condition `Ready` is `Unknown`; its kubelet is then inactive as well. The worker sets this
//! condition when heartbeats have stopped, but not on Nodes that never had heartbeats: the Lease of the Node must have
//! been renewed before, or its kubelet must have been stopped.

use super::cluster::Cluster;
use super::controller::{Changed, Sync, WorkloadController};
use super::heartbeat::LEASES;
use super::kubelet::Nodes;
use super::plan::{Plan, Write};
use super::pods::{generation, is_finished, is_true, plus, status};
use super::resource::{Resource, Target, key_of};
use super::sees::{Sees, conditions, find_condition, new_condition, put_condition};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;
use crate::workers::WorkerRow;

const COMPONENT: &str = "node-controller";
const TAINT_COMPONENT: &str = "taint-eviction-controller";

/// Seconds without a heartbeat after which a Node is lost.
const GRACE: i64 = 50;

/// The conditions that become `Unknown` if a Node is lost.
const LOST: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The taints of a Node by type and status of a condition.
const TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", "node.kubernetes.io/not-ready"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "nodelifecycle",
    &[
        WorkloadController {
            sync: Sync::Nodes(sync_node),
            gone: node_gone,
            concerns: node_concerned,
            ..WorkloadController::new(Resource::Node, COMPONENT, |_, _| Plan::EMPTY)
        },
        WorkloadController {
            sync: Sync::Nodes(sync_pod),
            concerns: pods_concerned,
            ..WorkloadController::new(Resource::Pod, COMPONENT, |_, _| Plan::EMPTY)
        },
    ],
);

/// Writes an Event about a Node that was removed.
fn node_gone(_: &Key, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    if let Some(node) = sees.removed {
        let message = format!("Node {0} event: Removing Node {0} from Controller", node.name());
        plan.note((Resource::Node, node), COMPONENT, "RemovingNode", message);
    }
    plan
}

/// Enqueues the Node of a Lease that has changed.
fn node_concerned(change: &Changed<'_>, _: &Cluster, add: &mut dyn FnMut(Key)) {
    if change.resource == Resource::Lease && change.key.namespace() == LEASES {
        add(Key::new("", change.key.name()));
    }
}

/// Enqueues the Pods of a Node if its taints or its readiness change.
fn pods_concerned(change: &Changed<'_>, cluster: &Cluster, add: &mut dyn FnMut(Key)) {
    if change.resource != Resource::Node {
        return;
    }
    let of =
        |node: Option<&Object>| node.map(|it| (Cursor::root(it).list("spec.taints").to_vec(), ready(it).to_owned()));
    if of(change.old) == of(change.new) {
        return;
    }
    for pod in cluster.all(Resource::Pod) {
        if Cursor::root(pod).text("spec.nodeName") == change.key.name() {
            add(key_of(pod));
        }
    }
}

/// Returns the status of the condition `Ready`; empty if it is absent.
pub(crate) fn ready(node: &Object) -> &str {
    find_condition(status(node), "Ready").map_or("", |it| Cursor::root(it).text("status"))
}

/// Plans the taints of a Node, and its conditions if it no longer sends heartbeats.
fn sync_node(node: &Object, sees: &Sees<'_>, nodes: &mut Nodes) -> Plan {
    let mut plan = Plan::default();
    if nodes.register(node) {
        let message = format!("Node {0} event: Registered Node {0} in Controller", node.name());
        plan.note((Resource::Node, node), COMPONENT, "RegisteredNode", message);
    }
    if node.is_terminating() || ready(node).is_empty() {
        return plan;
    }
    match nodes.heartbeats.last(node.name(), sees.now).map(|it| plus(it, GRACE)) {
        Some(due) if due > sees.now => plan.look_again(due),
        Some(_) if LOST.iter().any(|it| !is_unknown(node, it)) => {
            lose(node, sees, &mut plan);
            return plan;
        }
        Some(_) | None => {}
    }
    let holds = |kind: &str, value: &str| {
        find_condition(status(node), kind).is_some_and(|it| Cursor::root(it).text("status") == value)
    };
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for (kind, _, key) in TAINTS.into_iter().filter(|(kind, value, _)| holds(kind, value)) {
        wanted.push((key, "NoSchedule"));
        if kind == "Ready" {
            wanted.push((key, "NoExecute"));
        }
    }
    if Cursor::root(node).flag("spec.unschedulable") == Some(true) {
        wanted.push(("node.kubernetes.io/unschedulable", "NoSchedule"));
    }
    let is_own = |taint: &Value| {
        let key = text(taint, "key");
        TAINTS.iter().any(|(.., own)| *own == key) || key == "node.kubernetes.io/unschedulable"
    };
    let is_wanted = |taint: &Value| wanted.contains(&(text(taint, "key"), text(taint, "effect")));
    let known = Cursor::root(node).list("spec.taints");
    let mut next: Vec<Value> = known
        .iter()
        .filter(|it| !is_own(it) || is_wanted(it))
        .cloned()
        .collect();
    for (key, effect) in wanted.iter().copied() {
        if !next
            .iter()
            .any(|it| text(it, "key") == key && text(it, "effect") == effect)
        {
            next.push(json!({"key": key, "effect": effect, "timeAdded": sees.stamp()}));
        }
    }
    if next != known {
        let next = if next.is_empty() { Value::Null } else { json!(next) };
        plan.merge(Resource::Node, node, json!({"spec": {"taints": next}}));
    }
    plan
}

fn is_unknown(node: &Object, kind: &str) -> bool {
    find_condition(status(node), kind).is_some_and(|it| Cursor::root(it).text("status") == "Unknown")
}

/// Plans a write that sets the conditions of a Node to `Unknown`, because its heartbeats have stopped.
fn lose(node: &Object, sees: &Sees<'_>, plan: &mut Plan) {
    let mut list = conditions(status(node));
    for kind in LOST {
        let known = find_condition(status(node), kind);
        let (reason, message) = match known {
            Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
        };
        let created = node.meta_str("creationTimestamp");
        let heartbeat = known.map_or(created, |it| Cursor::root(it).text("lastHeartbeatTime"));
        let mut condition = new_condition(kind, "Unknown", reason, message, &sees.stamp());
        if !heartbeat.is_empty() {
            condition.insert("lastHeartbeatTime".into(), heartbeat.into());
        }
        put_condition(&mut list, condition);
    }
    plan.merge_status(Resource::Node, node, json!({"status": {"conditions": list}}));
    if is_true(node, "Ready") {
        let message = format!("Node {} status is now: NodeNotReady", node.name());
        plan.note((Resource::Node, node), COMPONENT, "NodeNotReady", message);
    }
}

/// Plans the eviction of a Pod that does not tolerate its Node's taints, and marks a Pod unready if its Node is lost.
fn sync_pod(pod: &Object, sees: &Sees<'_>, nodes: &mut Nodes) -> Plan {
    let mut plan = Plan::default();
    let node = Cursor::root(pod).text("spec.nodeName");
    let Some(node) = sees.cluster.find(Resource::Node, "", node) else {
        return plan;
    };
    if ready(node) == "Unknown" && is_true(pod, "Ready") && !is_finished(pod) {
        let mut list = conditions(status(pod));
        for condition in list.iter_mut().filter_map(Value::as_object_mut) {
            if Cursor::root(condition).text("type") == "Ready" {
                condition.insert("status".into(), "False".into());
                condition.insert("lastTransitionTime".into(), sees.stamp().into());
            }
        }
        plan.merge_status(Resource::Pod, pod, json!({"status": {"conditions": list}}));
        let about = (Resource::Pod, pod);
        plan.warn(about, COMPONENT, "NodeNotReady", "Node is not ready".to_owned());
    }
    if pod.is_terminating() {
        return plan;
    }
    let due = match tolerated(pod, node) {
        Tolerated::No => Some(sees.now),
        Tolerated::For(seconds) => Some(nodes.eviction(pod).unwrap_or_else(|| plus(sees.now, seconds))),
        Tolerated::Forever => None,
    };
    let planned = nodes.eviction(pod).filter(|at| *at > sees.now);
    if planned.is_some() && due != planned {
        let message = format!("Cancelling deletion of Pod {}/{}", pod.namespace(), pod.name());
        plan.note((Resource::Pod, pod), TAINT_COMPONENT, "TaintManagerEviction", message);
    }
    nodes.put_eviction(pod, due);
    match due {
        None => {}
        Some(at) if at > sees.now => plan.look_again(at),
        Some(_) => evict(pod, sees, &mut plan),
    }
    plan
}

/// Toleration of the `NoExecute` taints of a Node by a Pod.
enum Tolerated {
    No,
    /// The Pod is evicted this number of seconds after the controller has first observed it with taints.
    For(i64),
    Forever,
}

/// Returns how long a Pod tolerates the taints of its Node. For each taint, the first matching toleration counts; the
/// shortest of their times applies (`GetMatchingTolerations` and `getMinTolerationTime`).
fn tolerated(pod: &Object, node: &Object) -> Tolerated {
    let taints = Cursor::root(node).list("spec.taints").iter();
    let mut shortest = None;
    for taint in taints.filter(|it| text(it, "effect") == "NoExecute") {
        let mut tolerations = Cursor::root(pod).maps("spec.tolerations").map(Cursor::root);
        let Some(toleration) = tolerations.find(|it| bears(it, taint)) else {
            return Tolerated::No;
        };
        if let Some(seconds) = toleration.integer("tolerationSeconds") {
            shortest = Some(shortest.map_or(seconds, |it: i64| it.min(seconds)));
        }
    }
    shortest.map_or(Tolerated::Forever, |it| Tolerated::For(it.max(0)))
}

fn bears(toleration: &Cursor<'_>, taint: &Value) -> bool {
    let key = toleration.text("key");
    let effect = toleration.text("effect");
    let value_fits = match toleration.text("operator") {
        "Exists" => true,
        _ => !key.is_empty() && toleration.text("value") == text(taint, "value"),
    };
    (key.is_empty() || key == text(taint, "key")) && (effect.is_empty() || effect == "NoExecute") && value_fits
}

fn text<'a>(taint: &'a Value, field: &str) -> &'a str {
    taint.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn evict(pod: &Object, sees: &Sees<'_>, plan: &mut Plan) {
    let mut list = conditions(status(pod));
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "lastProbeTime": null, "lastTransitionTime": sees.stamp(),
        "reason": "DeletionByTaintManager", "message": "Taint manager: deleting due to NoExecute taint",
        "observedGeneration": generation(pod),
    });
    put_condition(&mut list, condition.as_object().cloned().unwrap_or_else(Map::new));
    plan.merge_status(Resource::Pod, pod, json!({"status": {"conditions": list}}));
    plan.writes.push(Write::Delete {
        at: Target::of(Resource::Pod, pod),
        grace: None,
        propagation: None,
        told: None,
    });
    let message = format!("Marking for deletion Pod {}/{}", pod.namespace(), pod.name());
    plan.note((Resource::Pod, pod), TAINT_COMPONENT, "TaintManagerEviction", message);
}
