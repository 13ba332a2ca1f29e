//! Plans the next step of a Pod or a Node: by the scheduler, by Stages or by the script of a Pod.

use super::look::{Look, sync};
use super::node::{self, DEFAULT_NODE};
use super::nodes::Nodes;
use super::{admission, resize};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;
use crate::workers::workloads::cluster::Cluster;
use crate::workers::workloads::controller::Changed;
use crate::workers::workloads::heartbeat::{self, KubeletState};
use crate::workers::workloads::kwok::{self, Addresses};
use crate::workers::workloads::node_lifecycle::ready;
use crate::workers::workloads::plan::{Note, Plan, Regarding, Write};
use crate::workers::workloads::pods;
use crate::workers::workloads::resource::{Resource, key_of};
use crate::workers::workloads::scheduler;
use crate::workers::workloads::sees::Sees;

/// Seconds between two attempts of a resize for which the Node has too few resources.
const RESIZE_RETRY: i64 = 10;

/// Enqueues the Pods that the scheduler may now be able to place, and the Pods of a Node that is new, lost or
/// recovered.
pub(super) fn concerns(change: &Changed<'_>, cluster: &Cluster, add: &mut dyn FnMut(Key)) {
    scheduler::concerns(change, cluster, add);
    if change.resource != Resource::Node || change.old.map(ready) == change.new.map(ready) {
        return;
    }
    let pods = cluster.all(Resource::Pod);
    let there = pods.filter(|it| Cursor::root(it).text("spec.nodeName") == change.key.name());
    there.for_each(|it| add(key_of(it)));
}

/// Plans the work of the scheduler for a Pod without a node, or the work of the kubelet for a Pod with a node.
pub(super) fn place_or_run(pod: &Object, sees: &Sees<'_>, nodes: &mut Nodes) -> Plan {
    let node = Cursor::root(pod).text("spec.nodeName");
    let mut plan = Plan::default();
    let needs_node = scheduler::is_waiting(pod) || (node == DEFAULT_NODE && pods::is_active(pod));
    if needs_node && node::register_first(sees, &mut plan) {
        // The new Node is observed first, and then the Pod is synced again.
        return plan;
    }
    if node.is_empty() {
        return scheduler::sync(pod, &nodes.load, sees);
    }
    let is_lost = |node: &Object| ready(node) == "Unknown";
    let host = sees.cluster.find(Resource::Node, "", node);
    if nodes.kubelet.is_stopped(node) || host.is_some_and(|it| is_lost(it)) {
        // The kubelet of a lost Node is inactive.
        return plan;
    }
    let load = nodes.load.get(node);
    if let Some((reason, message)) = admission::rejection(pod, load, sees) {
        reject(pod, reason, message, sees, &mut plan);
        return plan;
    }
    let refused_resize = resize::refusal(pod, load, sees);
    let is_deferred = refused_resize.as_ref().is_some_and(|(reason, _)| *reason == "Deferred");
    if let Some(stages) = nodes.kubelet.stages_of(Resource::Pod, pod) {
        let (_, memory) = nodes.enter(pod, sees.cluster);
        let addresses = Addresses {
            node_name: node.to_owned(),
            node: memory.host.clone(),
            pod: memory.address.clone(),
        };
        return kwok::sync(Resource::Pod, pod, &stages, addresses, &mut memory.stage, sees);
    }
    let (script, memory) = nodes.enter(pod, sees.cluster);
    let look = Look {
        pod,
        script: &script,
        memory,
        sees,
        now: sees.now,
        stamp: sees.stamp(),
        refused_resize,
        again: None,
        notes: Vec::new(),
    };
    let mut plan = sync(look);
    if is_deferred {
        plan.look_again(pods::plus(sees.now, RESIZE_RETRY));
    }
    plan
}

/// Plans the work of the kubelet for its Node.
pub(super) fn sync_node(node: &Object, sees: &Sees<'_>, nodes: &mut Nodes) -> Plan {
    let is_stopped = nodes.kubelet.is_stopped(node.name());
    let mut plan = match nodes.heartbeats.note(node.name(), is_stopped, sees.now) {
        KubeletState::Stopped => return Plan::EMPTY,
        KubeletState::Restarted => node::restarted(node, sees),
        KubeletState::Runs => status_of_node(node, sees, nodes),
    };
    let sends = nodes.kubelet.sends_heartbeats() && !node.is_terminating();
    nodes.heartbeats.note_sending(node.name(), sends);
    if sends {
        // Another write of the Node is followed by another sync. Stages may contain their own heartbeats.
        let is_unchanged = plan.writes.is_empty() && nodes.kubelet.stages_of(Resource::Node, node).is_none();
        heartbeat::renew(node, sees, &mut plan);
        if is_unchanged {
            heartbeat::report(node, sees, &mut plan);
        }
    }
    plan
}

/// Plans the status of a Node, by the Stages for Nodes if there are any.
fn status_of_node(node: &Object, sees: &Sees<'_>, nodes: &mut Nodes) -> Plan {
    let Some(stages) = nodes.kubelet.stages_of(Resource::Node, node) else {
        return node::sync(node, sees);
    };
    let addresses = Addresses {
        node_name: node.name().to_owned(),
        node: node::address_of(node, sees),
        pod: String::new(),
    };
    let pending = nodes.stages.entry(node.name().to_owned()).or_default();
    let mut plan = kwok::sync(Resource::Node, node, &stages, addresses, pending, sees);
    node::drop_taint(node, &mut plan);
    plan
}

/// Fails a Pod that the kubelet does not admit.
fn reject(pod: &Object, reason: String, message: String, sees: &Sees<'_>, plan: &mut Plan) {
    let mut next = pods::status(pod).clone();
    next.insert("phase".into(), "Failed".into());
    next.insert("reason".into(), reason.as_str().into());
    next.insert("message".into(), format!("Pod was rejected: {message}").into());
    next.insert("startTime".into(), sees.stamp().into());
    plan.status(Resource::Pod, pod, next);
    plan.writes.push(Write::Note(Note {
        about: Regarding::of(Resource::Pod, pod),
        component: "kubelet",
        host: Cursor::root(pod).text("spec.nodeName").to_owned(),
        is_warning: true,
        reason: reason.into(),
        message,
    }));
}
