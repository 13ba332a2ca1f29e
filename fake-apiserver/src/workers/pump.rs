//! The pump: the only task of the workers. It passes changes to all workers in the order of revisions. The lanes take
//! turns; in each turn, a lane syncs one key.

use std::pin::pin;
use std::sync::{Arc, Weak};

use futures::future::select;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::api::Rows;
use super::controller::Lane;
use super::host::Host;
use super::observed::Observed;
use crate::storage::{KeyRange, Revision, Store};

/// Runs all workers of a server. While the queues are empty, the pump has neither a reference to the server nor a
/// timer.
pub(super) struct Pump {
    host: Weak<dyn Host>,
    store: Arc<Store>,
    committed: Arc<Notify>,
    definitions_changed: Arc<Notify>,
    /// The workers, in the order in which they observe changes and sync keys. All controllers of workloads form one
    /// lane.
    lanes: Vec<Box<dyn Lane>>,
    rows: Rows,
    /// Epoch and revision up to which all changes have been observed; `None` before the first list.
    cursor: Option<(u64, Revision)>,
}

impl Pump {
    pub(super) fn new(host: &Arc<dyn Host>, lanes: Vec<Box<dyn Lane>>) -> Self {
        let registry = host.registry();
        Self {
            store: Arc::clone(&registry.reader.store),
            committed: Arc::clone(&registry.reader.committed),
            definitions_changed: Arc::clone(&registry.definitions.changed),
            host: Arc::downgrade(host),
            lanes,
            rows: Rows::default(),
            cursor: None,
        }
    }

    /// Runs until the server is dropped.
    pub(super) async fn run(mut self) {
        let (committed, definitions_changed) = (Arc::clone(&self.committed), Arc::clone(&self.definitions_changed));
        loop {
            // Registers before reading, so that no commit is missed.
            let (commit, definition) = (pin!(committed.notified()), pin!(definitions_changed.notified()));
            let changed = select(commit, definition);
            {
                let Some(host) = self.host.upgrade() else { return };
                while self.turn(&host).await {}
            }
            let due = self.lanes.iter().filter_map(|lane| lane.next_due()).min();
            match due {
                Some(due) => _ = select(changed, pin!(sleep_until(due))).await,
                None => _ = changed.await,
            }
        }
    }

    /// Syncs one key of every lane, and passes on the changes in between. Returns `false` if no key was ready.
    async fn turn(&mut self, host: &Arc<dyn Host>) -> bool {
        let mut worked = false;
        for index in 0..self.lanes.len() {
            self.tell(host);
            let lane = &mut self.lanes[index];
            if lane.is_ready() {
                worked = true;
                lane.run_one(host, &self.rows).await;
                // Allows the tasks of clients to run.
                tokio::task::yield_now().await;
            }
        }
        worked
    }

    /// Passes the changes since the last call to all workers.
    fn tell(&mut self, host: &Arc<dyn Host>) {
        let is_new = self.rows.refresh(host.registry());
        let fresh = self.cursor.and_then(|(epoch, revision)| {
            // If changes were dropped from the log, or the state was replaced, the cursor restarts with a list.
            let fresh = self.store.all_changes_after(epoch, revision).ok()?;
            Some((epoch, fresh))
        });
        match fresh {
            None => self.list(),
            Some((epoch, fresh)) => {
                for (resource, change) in &fresh.changes {
                    let row = self.rows.get(resource);
                    let (old, new) = (change.previous.as_ref(), change.current.as_ref());
                    let observed = Observed::new(resource, row, old, new);
                    self.lanes.iter_mut().for_each(|lane| lane.observe(&observed));
                }
                self.cursor = Some((epoch, fresh.revision));
            }
        }
        if is_new {
            self.lanes.iter_mut().for_each(|lane| lane.served_changed());
        }
    }

    /// Passes every object to all workers, oldest revision first.
    fn list(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.reset());
        let everything = self.store.everything();
        let range = KeyRange::of(None);
        let mut objects: Vec<_> = everything
            .resources
            .iter()
            .flat_map(|(resource, snapshot)| snapshot.range(&range).map(move |stored| (resource, stored)))
            .collect();
        objects.sort_by_key(|(_, stored)| stored.revision);
        for (resource, stored) in objects {
            let observed = Observed::new(resource, self.rows.get(resource), None, Some(stored));
            self.lanes.iter_mut().for_each(|lane| lane.observe(&observed));
        }
        self.cursor = Some((everything.epoch, everything.revision));
    }
}
