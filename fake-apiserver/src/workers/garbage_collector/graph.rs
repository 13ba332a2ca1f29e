//! `Graph`: the owner references between objects, by uid.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::{FOREGROUND, Item, ORPHAN};
use crate::storage::{Key, Stored};
use crate::workers::{Meta, OwnerReference, WorkQueue};

/// The number of an object in the graph. Numbers increase in the order of observation, so that dependents are handled
/// in that order.
pub(super) type NodeId = u64;

/// All objects and their owners.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: BTreeMap<NodeId, Node>,
    /// Node ids by uid. Never iterated.
    ids: HashMap<Box<str>, NodeId>,
    /// Dependents by the uid of their owner, which may not exist. Never iterated.
    owned: HashMap<String, Owned>,
    /// Objects with an owner of an unserved kind.
    unknown: BTreeSet<NodeId>,
    last_id: NodeId,
}

/// An object in the graph.
#[derive(Debug)]
pub(super) struct Node {
    /// Name of the resource in storage.
    pub(super) resource: Arc<str>,
    pub(super) kind: Box<str>,
    pub(super) key: Key,
    pub(super) uid: Box<str>,
    pub(super) owners: Vec<OwnerReference>,
    /// Set if the object is being deleted.
    pub(super) is_deleted: bool,
    /// Set if the deletion of the object waits until its dependents are deleted.
    pub(super) awaits_dependents: bool,
    /// Set if the deletion of the object waits until its dependents are orphaned.
    awaits_orphans: bool,
}

/// Dependents of an owner that may already be deleted.
#[derive(Debug, Default)]
struct Owned {
    dependents: BTreeSet<NodeId>,
    /// Set if the deletion of the owner was observed.
    gone: Option<Gone>,
}

/// A deleted owner.
#[derive(Debug)]
struct Gone {
    kind: Box<str>,
    key: Key,
}

impl Node {
    /// Returns `true` if this object blocks the deletion of its owner with this uid.
    fn blocks(&self, owner: &str) -> bool {
        let is_blocking = |it: &&OwnerReference| it.uid == owner && it.block_owner_deletion == Some(true);
        self.owners.iter().any(|it| is_blocking(&it))
    }

    /// Returns `true` if this object may have owners in the namespace.
    fn may_be_owned_in(&self, namespace: &str) -> bool {
        namespace.is_empty() || namespace == self.key.namespace()
    }
}

impl Graph {
    pub(super) fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// Returns the dependents of an object, in the order of observation.
    pub(super) fn dependents(&self, owner: &str) -> impl Iterator<Item = (NodeId, &Node)> {
        let owned = self.owned.get(owner).into_iter().flat_map(|it| &it.dependents);
        owned.filter_map(|id| Some((*id, self.nodes.get(id)?)))
    }

    /// Returns the dependents that block the deletion of an object.
    pub(super) fn blocking_dependents(&self, owner: &str) -> impl Iterator<Item = (NodeId, &Node)> {
        self.dependents(owner).filter(move |(_, node)| node.blocks(owner))
    }

    /// Returns `true` if the deletion of the owner was observed, so that the owner need not be looked up.
    pub(super) fn saw_go(&self, reference: &OwnerReference, dependent: &Node) -> bool {
        let gone = self.owned.get(&reference.uid).and_then(|it| it.gone.as_ref());
        gone.is_some_and(|gone| {
            // The kind is unknown if the object and its CRD were deleted in the same batch of changes.
            (gone.kind.is_empty() || *gone.kind == *reference.kind)
                && gone.key.name() == reference.name
                && dependent.may_be_owned_in(gone.key.namespace())
        })
    }

    /// Records an object with an owner of an unserved kind. It is processed again when the served kinds change.
    pub(super) fn note_unknown(&mut self, id: NodeId) {
        self.unknown.insert(id);
    }

    /// Enqueues the objects with owners of unserved kinds again. Called when the served kinds change.
    pub(super) fn retry_unknown(&mut self, queue: &mut WorkQueue<Item>) {
        for id in std::mem::take(&mut self.unknown) {
            queue.add(Item::Delete(id));
        }
    }

    /// Adds or updates an object.
    pub(super) fn put(
        &mut self,
        resource: &Arc<str>,
        kind: &str,
        stored: &Stored,
        meta: &Meta,
        queue: &mut WorkQueue<Item>,
    ) {
        let uid = &stored.body.uid;
        let (id, owners) = match self.ids.get(uid) {
            Some(id) => (*id, self.nodes.get(id).map(|it| it.owners.clone()).unwrap_or_default()),
            None => (self.insert(resource, kind, stored, queue), Vec::new()),
        };
        if owners != meta.owner_references {
            self.change_owners(id, &owners, &meta.owner_references, queue);
        }
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let (awaited_dependents, awaited_orphans) = (node.awaits_dependents, node.awaits_orphans);
        node.is_deleted = meta.is_terminating();
        node.awaits_dependents = node.is_deleted && meta.has_finalizer(FOREGROUND);
        node.awaits_orphans = node.is_deleted && meta.has_finalizer(ORPHAN);
        if node.awaits_orphans && !awaited_orphans {
            queue.add(Item::Orphan(id));
        } else if node.awaits_dependents && !awaited_dependents {
            for (dependent, _) in self.dependents(uid) {
                queue.add(Item::Delete(dependent));
            }
            queue.add(Item::Delete(id));
        }
    }

    /// Adds an object. Enqueues its dependents, because their owner references may contain a different name or kind.
    fn insert(&mut self, resource: &Arc<str>, kind: &str, stored: &Stored, queue: &mut WorkQueue<Item>) -> NodeId {
        self.last_id += 1;
        let id = self.last_id;
        let node = Node {
            resource: Arc::clone(resource),
            kind: kind.into(),
            key: stored.key.clone(),
            uid: stored.body.uid.clone(),
            owners: Vec::new(),
            is_deleted: false,
            awaits_dependents: false,
            awaits_orphans: false,
        };
        let uid = &*node.uid;
        for (dependent, child) in self.dependents(uid) {
            if !child.may_be_owned_in(node.key.namespace()) {
                queue.add(Item::Report(dependent, uid.to_owned()));
            }
            queue.add(Item::Delete(dependent));
        }
        if let Some(owned) = self.owned.get_mut(uid) {
            owned.gone = None;
        }
        self.ids.insert(node.uid.clone(), id);
        self.nodes.insert(id, node);
        id
    }

    /// Updates the owners of an object.
    fn change_owners(
        &mut self,
        id: NodeId,
        old: &[OwnerReference],
        new: &[OwnerReference],
        queue: &mut WorkQueue<Item>,
    ) {
        let is_blocking = |owners: &[OwnerReference], uid: &str| {
            owners
                .iter()
                .any(|it| it.uid == uid && it.block_owner_deletion == Some(true))
        };
        for owner in old {
            if is_blocking(old, &owner.uid)
                && !is_blocking(new, &owner.uid)
                && let Some(owner) = self.ids.get(&*owner.uid)
            {
                queue.add(Item::Delete(*owner));
            }
        }
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.owners = new.to_vec();
        let mut is_doubtful = false;
        for owner in new {
            let is_added = !old.iter().any(|other| other.uid == owner.uid);
            self.owned.entry(owner.uid.clone()).or_default().dependents.insert(id);
            let (Some(node), known) = (self.nodes.get(&id), self.ids.get(&*owner.uid)) else {
                continue;
            };
            match known.and_then(|known| self.nodes.get(known)) {
                None => is_doubtful = true,
                Some(known) if !node.may_be_owned_in(known.key.namespace()) => {
                    if is_added {
                        queue.add(Item::Report(id, owner.uid.clone()));
                    }
                    is_doubtful = true;
                }
                Some(known) => is_doubtful |= *known.kind != *owner.kind || known.key.name() != owner.name,
            }
        }
        if is_doubtful {
            queue.add(Item::Delete(id));
        }
        for owner in old.iter().filter(|it| !new.iter().any(|other| other.uid == it.uid)) {
            self.disown(&owner.uid, id);
        }
    }

    /// Removes an object, and enqueues its dependents and the owners that waited for it.
    pub(super) fn remove(&mut self, uid: &str, queue: &mut WorkQueue<Item>) {
        let Some(node) = self.ids.remove(uid).and_then(|id| {
            self.unknown.remove(&id);
            let node = self.nodes.remove(&id)?;
            node.owners.iter().for_each(|owner| self.disown(&owner.uid, id));
            Some(node)
        }) else {
            return;
        };
        if let Some(owned) = self.owned.get_mut(uid) {
            owned.dependents.iter().for_each(|it| queue.add(Item::Delete(*it)));
            owned.gone = Some(Gone {
                kind: node.kind,
                key: node.key,
            });
        }
        for owner in &node.owners {
            let owner = self.ids.get(&*owner.uid).copied();
            if let Some(id) = owner.filter(|id| self.nodes.get(id).is_some_and(|it| it.awaits_dependents)) {
                queue.add(Item::Delete(id));
            }
        }
    }

    fn disown(&mut self, owner: &str, dependent: NodeId) {
        if let Some(owned) = self.owned.get_mut(owner) {
            owned.dependents.remove(&dependent);
            if owned.dependents.is_empty() {
                self.owned.remove(owner);
            }
        }
    }
}
