//! The Node of a kubelet: it says that it is ready, which lets Pods in.

use super::super::plan::Plan;
use super::super::pods::status;
use super::super::resource::Resource;
use super::super::sees::{Sees, find_condition};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;

/// Taint that a new Node has until it is ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Plans the work for a Node: one without conditions becomes ready, and a ready one loses its taint. A Node whose
/// conditions a test wrote stays as it is.
pub(super) fn sync(node: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    if node.is_terminating() {
        return plan;
    }
    if Cursor::root(node).list("status.conditions").is_empty() {
        plan.status(Resource::Node, node, ready_status(node, &sees.stamp()));
        return plan;
    }
    let is_ready = find_condition(status(node), "Ready").is_some_and(|it| Cursor::root(it).text("status") == "True");
    let taints = Cursor::root(node).list("spec.taints");
    let holds = |taint: &&Value| taint.get("key").and_then(Value::as_str) == Some(NOT_READY);
    if is_ready && taints.iter().any(|it| holds(&it)) {
        let left: Vec<&Value> = taints.iter().filter(|it| !holds(it)).collect();
        let left = if left.is_empty() { Value::Null } else { json!(left) };
        plan.merge(Resource::Node, node, json!({"spec": {"taints": left}}));
    }
    plan
}

/// The status of a Node that is ready; what a test wrote of it stays.
fn ready_status(node: &Object, now: &str) -> Map {
    let mut next = status(node).clone();
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    let conditions = json!([
        condition(
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available"
        ),
        condition(
            "DiskPressure",
            "False",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure"
        ),
        condition(
            "PIDPressure",
            "False",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available"
        ),
        condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]);
    next.insert("conditions".into(), conditions);
    let room = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
    for field in ["capacity", "allocatable"] {
        if !Cursor::root(&next).is_set(field) {
            next.insert(field.into(), room.clone());
        }
    }
    if Cursor::root(&next).is_empty("addresses") {
        let addresses = json!([{"type": "Hostname", "address": node.name()}]);
        next.insert("addresses".into(), addresses);
    }
    next
}
