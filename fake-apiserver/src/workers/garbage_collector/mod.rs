//! The garbage collector: deletes objects without remaining owners, and completes the deletion of an owner once the
//! dependents for which it waits are gone (rules S1 to S6). It reads and writes the cluster through `Api`.

mod graph;
mod collect;

use super::{Context, Controller, Follows, Identity, Observed, RequestFailure, WorkQueue, WorkerRow};
use graph::{Graph, NodeId};

pub(super) const ROW: WorkerRow = WorkerRow::alone::<GarbageCollector>("gc");

/// The finalizer of an owner that waits until its dependents have been deleted.
const FOREGROUND: &str = "foregroundDeletion";

/// The finalizer of an owner that waits until its dependents have been orphaned.
const ORPHAN: &str = "orphan";

/// Deletes objects without remaining owners.
#[derive(Debug, Default)]
pub(super) struct GarbageCollector {
    graph: Graph,
}

/// Item of the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// An object that may have to be deleted, or that waits for the deletion of its dependents.
    Delete(NodeId),
    /// An object that is being deleted and orphans its dependents.
    Orphan(NodeId),
    /// An object with an owner reference to another namespace, and the owner's uid.
    Report(NodeId, String),
}

impl Controller for GarbageCollector {
    type Key = Item;

    fn identity(&self) -> Identity {
        Identity::controller("generic-garbage-collector")
    }

    fn follows(&self) -> Follows {
        Follows::All
    }

    fn reset(&mut self) {
        self.graph = Graph::default();
    }

    fn observe(&mut self, change: &Observed<'_>, queue: &mut WorkQueue<Item>) {
        // Events are numerous, and are not owned by the objects that they refer to.
        if **change.resource == *"events" {
            return;
        }
        if let Some(gone) = change.old.filter(|old| {
            let same = change.new.is_some_and(|new| new.body.uid == old.body.uid);
            !same
        }) {
            self.graph.remove(&gone.body.uid, queue);
        }
        if let Some(stored) = change.new {
            let kind = change.row().map_or("", |row| &*row.info.kind);
            self.graph.put(change.resource, kind, stored, change.meta(), queue);
        }
    }

    fn served_changed(&mut self, queue: &mut WorkQueue<Item>) {
        self.graph.retry_unknown(queue);
    }

    async fn sync(&mut self, item: Item, context: &mut Context<'_, Item>) -> Result<(), RequestFailure> {
        match item {
            Item::Delete(id) => self.attempt_to_delete(id, context).await,
            Item::Orphan(id) => self.attempt_to_orphan(id, context).await,
            Item::Report(id, owner) => self.report(id, &owner, context).await,
        }
    }
}
