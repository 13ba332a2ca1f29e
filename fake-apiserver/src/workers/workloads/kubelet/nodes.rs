//! `Nodes`: the state that the scheduler and the kubelets keep in memory: the load of nodes, addresses, and the state
//! of Pods.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;

use super::super::autoscaler::history::History;
use super::super::back_off::{FailedPods, Failures};
use super::super::cluster::Cluster;
use super::super::fit::Load;
use super::super::heartbeat::Heartbeats;
use super::super::kwok::Pending;
use super::super::pods::{generation, is_finished};
use super::super::resource::Resource;
use super::super::trigger_times::TriggerTimes;
use super::look::{HostState, Memory};
use super::script::{Kubelet, PodScript};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::node_address;

/// The state of all nodes that the scheduler and the kubelets keep in memory.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) kubelet: Kubelet,
    /// The version of the scripts at the last sync of the Pods.
    scripts: u64,
    /// State that the kubelet and the eviction by taints keep for each Pod, by uid.
    memories: HashMap<String, Memory>,
    /// Load of each node.
    pub(crate) load: BTreeMap<String, Load>,
    pub(crate) heartbeats: Heartbeats,
    /// The KWOK Stage that each Node waits for, by name of the Node.
    pub(super) stages: HashMap<String, Option<Pending>>,
    /// The history of each autoscaler, by uid.
    pub(crate) autoscalers: HashMap<String, History>,
    /// The failures of the Pods of each Job, by uid.
    pub(crate) jobs: HashMap<String, Failures>,
    /// The delays of each DaemonSet, by uid.
    pub(crate) daemon_sets: HashMap<String, FailedPods>,
    /// The observed changes of the Pods of each Service, by uid.
    pub(crate) services: HashMap<String, TriggerTimes>,
    /// The uids of the Nodes that the controller of Nodes has registered.
    registered: HashSet<String>,
    /// Number of the last address that was assigned to a Pod.
    addresses: u32,
}

impl Nodes {
    /// Creates a state without Pods.
    pub(crate) fn new(kubelet: Kubelet) -> Self {
        Self {
            scripts: kubelet.version(),
            kubelet,
            memories: HashMap::new(),
            load: BTreeMap::new(),
            heartbeats: Heartbeats::default(),
            stages: HashMap::new(),
            autoscalers: HashMap::new(),
            jobs: HashMap::new(),
            daemon_sets: HashMap::new(),
            services: HashMap::new(),
            registered: HashSet::new(),
            addresses: 0,
        }
    }

    /// Returns `true` if the scripts have changed since the last call.
    pub(crate) fn scripts_changed(&mut self) -> bool {
        let version = self.kubelet.version();
        std::mem::replace(&mut self.scripts, version) != version
    }

    /// Returns the script of a Pod that has a node, and the state that the kubelet keeps for it, including addresses.
    pub(super) fn enter(&mut self, pod: &Object, cluster: &Cluster) -> (PodScript, &mut Memory) {
        let memory = self.memories.entry(pod.uid().to_owned()).or_default();
        if memory.host.is_empty() {
            memory.host = host_address(cluster, Cursor::root(pod).text("spec.nodeName"));
            memory.address = match Cursor::root(pod).text("status.podIP") {
                "" => {
                    self.addresses += 1;
                    address(self.addresses)
                }
                known => known.to_owned(),
            };
        }
        (self.kubelet.script_of(pod), memory)
    }

    /// Returns the time at which the deletion of a Pod's Node was observed; `None` if the Node exists, or was never
    /// observed.
    pub(crate) fn orphaned(&mut self, pod: &Object, has_node: bool, now: Timestamp) -> Option<Timestamp> {
        let host = &mut self.memories.entry(pod.uid().to_owned()).or_default().node;
        *host = match (has_node, *host) {
            (true, _) => HostState::Exists,
            (false, HostState::Exists) => HostState::Deleted(now),
            (false, known) => known,
        };
        match *host {
            HostState::Deleted(since) => Some(since),
            HostState::Exists | HostState::Unobserved => None,
        }
    }

    /// Returns the time at which a Pod is evicted from its Node, if an eviction is scheduled.
    pub(crate) fn eviction(&self, pod: &Object) -> Option<Timestamp> {
        self.memories.get(pod.uid())?.eviction
    }

    /// Schedules the eviction of a Pod, or cancels it.
    pub(crate) fn put_eviction(&mut self, pod: &Object, due: Option<Timestamp>) {
        if due.is_some() || self.memories.contains_key(pod.uid()) {
            self.memories.entry(pod.uid().to_owned()).or_default().eviction = due;
        }
    }

    /// Drops the state of an object that was removed, or replaced by another object with the same name.
    pub(crate) fn forget(&mut self, old: Option<&Object>, new: Option<&Object>) {
        let Some(old) = old.filter(|old| new.is_none_or(|new| new.uid() != old.uid())) else {
            return;
        };
        self.memories.remove(old.uid());
        self.autoscalers.remove(old.uid());
        self.jobs.remove(old.uid());
        self.daemon_sets.remove(old.uid());
        self.services.remove(old.uid());
        self.registered.remove(old.uid());
    }

    /// Returns `true` if a Node is new to the controller of Nodes.
    pub(crate) fn register(&mut self, node: &Object) -> bool {
        !self.registered.contains(node.uid()) && self.registered.insert(node.uid().to_owned())
    }

    /// Updates the load of nodes and the assigned addresses after a change of a Pod.
    pub(crate) fn count_pod(&mut self, old: Option<&Object>, new: Option<&Object>) {
        let place = |pod: &Object| {
            Some(Cursor::root(pod).text("spec.nodeName").to_owned()).filter(|it| !it.is_empty() && !is_finished(pod))
        };
        let (was, is) = (old.and_then(place), new.and_then(place));
        // A resize changes the generation and the requests.
        if was != is || old.map(generation) != new.map(generation) {
            if let (Some(old), Some(load)) = (old, was.and_then(|node| self.load.get_mut(&node))) {
                load.remove(old);
            }
            if let (Some(new), Some(node)) = (new, is) {
                self.load.entry(node).or_default().add(new);
            }
        }
        if let (None, Some(new)) = (old, new) {
            // The addresses of Pods that exist after a relist must not be assigned again.
            let known = number_of(Cursor::root(new).text("status.podIP"));
            self.addresses = self.addresses.max(known.unwrap_or(0));
        }
    }
}

/// Returns the address of a node.
fn host_address(cluster: &Cluster, node: &str) -> String {
    let node = cluster.find(Resource::Node, "", node);
    let address = node.and_then(|node| {
        let mut addresses = Cursor::root(node).maps("status.addresses");
        addresses
            .find(|it| Cursor::root(it).text("type") == "InternalIP")
            .map(|it| Cursor::root(it).text("address").to_owned())
    });
    address.unwrap_or_else(|| node_address(0))
}

/// Returns the n-th address; addresses are in 10.244.0.0/16 until it is exhausted.
fn address(number: u32) -> String {
    let [_, high, middle, low] = number.to_be_bytes();
    format!("10.{}.{middle}.{low}", 244_u8.wrapping_add(high))
}

/// Returns the number of an address; `None` if the address is not in the kubelet's range.
fn number_of(address: &str) -> Option<u32> {
    let mut parts = address.split('.').map(|it| it.parse::<u8>());
    let mut next = || parts.next()?.ok();
    let (ten, high, middle, low) = (next()?, next()?, next()?, next()?);
    (ten == 10 && high >= 244).then(|| u32::from_be_bytes([0, high - 244, middle, low]))
}
