//! `WorkloadController`: a controller of workloads described as data. The file of each worker defines its controllers.

use super::cluster::{Cluster, controller_of, selects};
use super::kubelet::Nodes;
use super::plan::Plan;
use super::pods::spec;
use super::resource::{Resource, key_of};
use super::sees::{Sees, selector_of, service_selector};
use crate::api::object::Object;
use crate::storage::Key;

/// A controller of workloads: the resource of its objects, and its functions.
pub(crate) struct WorkloadController {
    /// Resource of the synced objects. A change of such an object triggers a sync if `is_relevant` returns `true`.
    pub(crate) resource: Resource,
    pub(crate) is_relevant: fn(&Changed<'_>) -> bool,
    pub(crate) sender: Sender,
    pub(crate) sync: Sync,
    /// Plans the work after an object was removed.
    pub(crate) gone: fn(&Key, &Sees<'_>) -> Plan,
    /// Enqueues further keys that a change affects, mostly after changes of objects of other resources.
    pub(crate) concerns: fn(&Changed<'_>, &Cluster, &mut dyn FnMut(Key)),
    /// Set if the synced objects are the controllers of other objects. Every change of an owned object triggers a sync.
    pub(crate) owns: bool,
    /// Resource of the orphans that a synced object adopts if its selector matches them.
    pub(crate) adopts: Option<Resource>,
    /// Set if the status is written even after the server has refused to create or delete an object.
    pub(crate) reports_refusals: bool,
}

/// The sender of a controller's requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sender {
    /// A service account in `kube-system`.
    Account(&'static str),
    /// The kubelet of the object's node, or the scheduler if the object does not have a node.
    Kubelet,
}

/// Plans the work for an object.
#[derive(Clone, Copy)]
pub(crate) enum Sync {
    /// The plan only depends on the objects.
    Objects(fn(&Object, &Sees<'_>) -> Plan),
    /// The plan also depends on the state that [`Nodes`] keeps in memory.
    Nodes(fn(&Object, &Sees<'_>, &mut Nodes) -> Plan),
}

/// A change of an object.
pub(crate) struct Changed<'a> {
    pub(crate) resource: Resource,
    pub(crate) key: &'a Key,
    pub(crate) old: Option<&'a Object>,
    pub(crate) new: Option<&'a Object>,
}

impl Changed<'_> {
    /// Returns the object before and after the change.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &Object> {
        [self.old, self.new].into_iter().flatten()
    }
}

impl WorkloadController {
    /// Creates a controller that only reacts to changes of objects of `resource`. It ignores objects that these objects
    /// own (`owns: false`).
    pub(crate) const fn new(resource: Resource, account: &'static str, sync: fn(&Object, &Sees<'_>) -> Plan) -> Self {
        Self {
            resource,
            is_relevant: |_| true,
            sender: Sender::Account(account),
            sync: Sync::Objects(sync),
            gone: |_, _| Plan::EMPTY,
            concerns: |_, _, _| {},
            owns: false,
            adopts: None,
            reports_refusals: false,
        }
    }

    /// Calls `add` for the keys that a change affects, in a fixed order; a key may occur twice.
    pub(crate) fn keys(&self, change: &Changed<'_>, cluster: &Cluster, add: &mut dyn FnMut(Key)) {
        if self.owns {
            let owners = change.versions().filter_map(controller_of);
            for (_, name, _) in owners.filter(|(kind, ..)| *kind == self.resource.kind()) {
                add(Key::new(change.key.namespace(), name));
            }
        }
        if change.resource == self.resource && (self.is_relevant)(change) {
            add(change.key.clone());
        }
        if self.adopts == Some(change.resource)
            && let Some(orphan) = change.new.filter(|it| controller_of(it).is_none())
        {
            for set in cluster.within(self.resource, change.key.namespace()) {
                if self.selector(set).is_some_and(|it| selects(&it, orphan)) {
                    add(key_of(set));
                }
            }
        }
        (self.concerns)(change, cluster, add);
    }

    fn selector(&self, set: &Object) -> Option<crate::api::selector::LabelSelector> {
        match self.resource {
            Resource::ReplicationController => service_selector(set),
            _ => selector_of(spec(set), "selector"),
        }
    }
}
