//! Commits: the doors to storage, each of which tells everyone concerned.

use std::sync::Arc;

use super::Registry;
use super::scheme::{CRDS, Row};
use crate::storage::{Body, Key, Revision, StoreError, Stored, World};

impl Registry {
    /// Forgets history up to `revision`; watchers and pages below it get 410.
    pub(crate) fn compact(&self, revision: Revision) {
        self.store.compact(revision);
        // A sleeping cursor loses nothing, wherever it lies: only those who lag can be hit, and they are awake.
    }

    /// Replaces all state: watches end, CRDs are read anew.
    pub(crate) fn restore(&self, world: World) {
        self.store.replace(world);
        self.compaction.restart();
        self.roles_replaced();
        self.admission.invalidate();
        self.load_definitions();
        self.events_replaced();
        self.fanout.wake_all();
        self.committed.notify_waiters();
    }

    /// Stores a new object.
    pub(super) fn insert(&self, row: &Row, key: Key, body: Body) -> Result<Arc<Stored>, StoreError> {
        self.note_time();
        let stored = self.store.create(&row.storage, key, body)?;
        self.event_written(row, &stored.key, stored.revision);
        self.signal(row, &stored.key);
        Ok(stored)
    }

    /// Stores an object in place of `old`, if that is still the one.
    pub(super) fn replace(&self, row: &Row, old: &Stored, body: Body) -> Result<Arc<Stored>, StoreError> {
        self.note_time();
        let stored = self.store.update(&row.storage, &old.key, old.revision, body)?;
        self.event_written(row, &stored.key, stored.revision);
        self.signal(row, &stored.key);
        Ok(stored)
    }

    /// Removes `old`, if it is still the one.
    pub(super) fn remove(&self, row: &Row, old: &Stored) -> Result<Revision, StoreError> {
        self.note_time();
        let revision = self.store.delete(&row.storage, &old.key, old.revision)?;
        self.event_removed(row, &old.key);
        self.signal(row, &old.key);
        if row.is_custom() {
            self.instance_removed();
        }
        Ok(revision)
    }

    /// Stores what the server itself makes of an object in the wake of a client's write, if `old` is still the one;
    /// what follows from it is the caller's.
    pub(super) fn replace_own(&self, row: &Row, old: &Stored, body: Body) -> bool {
        self.note_time();
        let stored = self.store.update(&row.storage, &old.key, old.revision, body);
        if stored.is_ok() {
            self.wake(row, &old.key);
        }
        stored.is_ok()
    }

    /// The same where nothing is left of it.
    pub(super) fn remove_own(&self, row: &Row, old: &Stored) -> bool {
        self.note_time();
        let removed = self.store.delete(&row.storage, &old.key, old.revision);
        if removed.is_ok() {
            self.wake(row, &old.key);
        }
        removed.is_ok()
    }

    /// Wakes the watchers.
    fn wake(&self, row: &Row, key: &Key) {
        match self.replicas.move_with_commits() {
            true => self.fanout.wake_all(),
            false => self.fanout.wake(&row.storage, key),
        }
        self.committed.notify_waiters();
    }

    /// Tells everyone concerned of a commit.
    fn signal(&self, row: &Row, key: &Key) {
        self.wake(row, key);
        if *row.storage == *CRDS {
            self.definitions_written();
        }
        self.roles_written(row, key);
        self.admission_written(row, key);
        self.sync_own_conditions(row, key);
    }
}
