//! The Nodes of the kubelets: registers the first Node, and makes Nodes ready, so that Pods can be scheduled.

use std::collections::BTreeSet;

use super::super::plan::Plan;
use super::super::pods::status;
use super::super::resource::Resource;
use super::super::sees::{Sees, conditions, find_condition, put_condition};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::{node_address, node_info};

/// Taint of a new Node that is not ready yet.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Name of the node that is registered when the first Pod needs one.
pub(crate) const DEFAULT_NODE: &str = "node-0";

/// Plans the registration of the first Node; returns `false` if a Node exists.
pub(super) fn register_first(sees: &Sees<'_>, plan: &mut Plan) -> bool {
    if sees.cluster.all(Resource::Node).next().is_some() {
        return false;
    }
    let labels = json!({
        "kubernetes.io/hostname": DEFAULT_NODE, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
    });
    let mut node = Object(Map::new());
    node.metadata_mut().insert("name".into(), DEFAULT_NODE.into());
    node.metadata_mut().insert("labels".into(), labels);
    let status = ready_status(&node, sees);
    node.0.insert("status".into(), Value::Object(status));
    plan.create(Resource::Node, Value::Object(node.0));
    true
}

/// Plans the work for a Node: a Node without conditions becomes ready, and a ready Node loses the taint `not-ready`.
/// Conditions that a test has set are not changed.
pub(super) fn sync(node: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    if node.is_terminating() {
        return plan;
    }
    if Cursor::root(node).list("status.conditions").is_empty() {
        plan.status(Resource::Node, node, ready_status(node, sees));
        return plan;
    }
    drop_taint(node, &mut plan);
    plan
}

/// Plans the status of a Node after its kubelet was restarted: it gets the conditions of a ready Node.
pub(super) fn restarted(node: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut next = status(node).clone();
    let mut list = conditions(&next);
    for condition in Cursor::root(&ready_status(node, sees)).maps("conditions") {
        put_condition(&mut list, condition.clone());
    }
    next.insert("conditions".into(), list.into());
    plan.status(Resource::Node, node, next);
    plan
}

/// Plans the removal of the taint `not-ready`, if the Node is ready.
pub(super) fn drop_taint(node: &Object, plan: &mut Plan) {
    let is_ready = find_condition(status(node), "Ready").is_some_and(|it| Cursor::root(it).text("status") == "True");
    let taints = Cursor::root(node).list("spec.taints");
    let holds = |taint: &&Value| taint.get("key").and_then(Value::as_str) == Some(NOT_READY);
    if is_ready && taints.iter().any(|it| holds(&it)) {
        let left: Vec<&Value> = taints.iter().filter(|it| !holds(it)).collect();
        let left = if left.is_empty() { Value::Null } else { json!(left) };
        plan.merge(Resource::Node, node, json!({"spec": {"taints": left}}));
    }
}

/// Returns the `InternalIP` of a Node, or the address that it will get.
pub(super) fn address_of(node: &Object, sees: &Sees<'_>) -> String {
    let mut addresses = Cursor::root(node).maps("status.addresses").map(Cursor::root);
    let own = addresses.find(|it| it.text("type") == "InternalIP");
    own.map_or_else(|| free_address(sees), |it| it.text("address").to_owned())
}

/// Returns the status of a ready Node. Fields that a test wrote are kept, except for the conditions.
fn ready_status(node: &Object, sees: &Sees<'_>) -> Map {
    let mut next = status(node).clone();
    let now = sees.stamp();
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
        let addresses = json!([
            {"type": "InternalIP", "address": free_address(sees)},
            {"type": "Hostname", "address": node.name()},
        ]);
        next.insert("addresses".into(), addresses);
    }
    if Cursor::root(&next).is_empty("nodeInfo.kubeletVersion") {
        next.insert("nodeInfo".into(), node_info(node.name(), sees.version));
    }
    next
}

/// Returns the first address that is not used by a Node.
fn free_address(sees: &Sees<'_>) -> String {
    let nodes = sees.cluster.all(Resource::Node);
    let used = nodes.flat_map(|node| Cursor::root(node).maps("status.addresses"));
    let used: BTreeSet<&str> = used.map(|it| Cursor::root(it).text("address")).collect();
    // One of these addresses is free, because there is one more of them than there are used addresses.
    let mut addresses = (0..=used.len()).map(node_address);
    let free = addresses.find(|it| !used.contains(it.as_str()));
    free.unwrap_or_else(|| node_address(0))
}
