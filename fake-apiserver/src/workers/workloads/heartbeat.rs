//! Heartbeats of Nodes: renews Leases in `kube-node-lease`, reports the status of Nodes, and records the time of the
//! last heartbeat of each Node.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;

use super::plan::Plan;
use super::pods::{plus, status, time};
use super::resource::Resource;
use super::sees::{Sees, conditions};
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;

/// The namespace of the Leases of Nodes.
pub(super) const LEASES: &str = "kube-node-lease";

/// Seconds between two renewals of a Lease by the kubelet.
const RENEWED_EVERY: i64 = 10;

/// Duration of a Lease, in seconds.
const HELD_FOR: i64 = 40;

/// Seconds between two reports of an unchanged status by the kubelet (`nodeStatusReportFrequency`).
const REPORTED_EVERY: i64 = 300;

/// Conditions that the kubelet reports.
const REPORTED: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];

/// The last heartbeats of Nodes.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats {
    /// Time of the last renewal of each Node's Lease; `None` until the Node is synced. The creation of a Lease is not a
    /// renewal.
    renewed: HashMap<String, Option<Timestamp>>,
    /// Nodes with a kubelet of this server that renews their Leases.
    sent: BTreeSet<String>,
    /// Time at which the kubelet of each stopped Node was stopped.
    stopped: BTreeMap<String, Timestamp>,
}

/// State of a Node's kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KubeletState {
    Runs,
    /// The kubelet was restarted at this sync.
    Restarted,
    Stopped,
}

impl Heartbeats {
    /// Observes a change of a Lease or a Node.
    pub(super) fn observe(&mut self, resource: Resource, key: &Key, old: Option<&Object>, new: Option<&Object>) {
        let renewal = |lease: &Object| Cursor::root(lease).text("spec.renewTime").to_owned();
        match (resource, old, new) {
            (Resource::Lease, Some(old), Some(new)) if key.namespace() == LEASES && renewal(old) != renewal(new) => {
                self.renewed.insert(key.name().to_owned(), None);
            }
            (Resource::Node, _, None) => {
                self.renewed.remove(key.name());
                self.sent.remove(key.name());
                self.stopped.remove(key.name());
            }
            _ => {}
        }
    }

    /// Returns the time of the last heartbeat of a Node, or the time at which its kubelet was stopped. Returns `None`
    /// if the Node is not required to send heartbeats.
    pub(super) fn last(&mut self, node: &str, now: Timestamp) -> Option<Timestamp> {
        let renewed = self.renewed.get_mut(node).map(|it| *it.get_or_insert(now));
        renewed.or_else(|| self.stopped.get(node).copied())
    }

    /// Records whether the kubelet of a Node sends heartbeats. If it no longer sends any, they are not required.
    pub(super) fn note_sending(&mut self, node: &str, sends: bool) {
        if sends {
            self.sent.insert(node.to_owned());
        } else if self.sent.remove(node) {
            self.renewed.remove(node);
        }
    }

    /// Records whether the kubelet of a Node is stopped.
    pub(super) fn note(&mut self, node: &str, is_stopped: bool, now: Timestamp) -> KubeletState {
        if is_stopped {
            self.stopped.entry(node.to_owned()).or_insert(now);
            return KubeletState::Stopped;
        }
        match self.stopped.remove(node) {
            Some(_) => KubeletState::Restarted,
            None => KubeletState::Runs,
        }
    }
}

/// Renews the Lease of a Node if it is due, and plans the next renewal.
pub(super) fn renew(node: &Object, sees: &Sees<'_>, plan: &mut Plan) {
    let now = format!("{:.6}", sees.now);
    let Some(lease) = sees.cluster.find(Resource::Lease, LEASES, node.name()) else {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node.name(), "uid": node.uid()});
        let lease = json!({
            "metadata": {"name": node.name(), "namespace": LEASES, "ownerReferences": [owner]},
            "spec": {"holderIdentity": node.name(), "leaseDurationSeconds": HELD_FOR, "renewTime": now},
        });
        plan.create(Resource::Lease, lease);
        plan.look_again(plus(sees.now, RENEWED_EVERY));
        return;
    };
    let last = time(Cursor::root(lease).text("spec.renewTime")).unwrap_or(Timestamp::MIN);
    let due = plus(last, RENEWED_EVERY);
    if due > sees.now {
        plan.look_again(due);
        return;
    }
    plan.merge(Resource::Lease, lease, json!({"spec": {"renewTime": now}}));
    plan.look_again(plus(sees.now, RENEWED_EVERY));
}

/// Renews the heartbeat times in the status of a Node if they are due or missing, and plans the next report. Unknown
/// conditions are not changed, because tests set them to simulate lost Nodes.
pub(super) fn report(node: &Object, sees: &Sees<'_>, plan: &mut Plan) {
    let mut list = conditions(status(node));
    let is_reported = |it: &Value| REPORTED.iter().any(|kind| it["type"] == *kind) && it["status"] != "Unknown";
    if !list.iter().any(is_reported) {
        return;
    }
    let reported = list.iter().filter(|it| is_reported(it));
    let times = reported.filter_map(|it| time(it["lastHeartbeatTime"].as_str().unwrap_or_default()));
    let due = times.max().map_or(sees.now, |last| plus(last, REPORTED_EVERY));
    if due > sees.now {
        plan.look_again(due);
        return;
    }
    for it in list.iter_mut().filter(|it| is_reported(it)) {
        it["lastHeartbeatTime"] = sees.stamp().into();
    }
    plan.merge_status(Resource::Node, node, json!({"status": {"conditions": list}}));
    plan.look_again(plus(sees.now, REPORTED_EVERY));
}
