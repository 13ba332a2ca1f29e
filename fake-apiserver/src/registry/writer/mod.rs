//! `Writer`: all writes to storage. Each commit wakes the readers and watchers that wait for it;
//! [`Registry`](super::Registry) handles all other consequences of a commit.

pub(crate) mod expiry;

use std::sync::Arc;
use std::time::Duration;

use super::reader::Reader;
use super::scheme::Row;
use crate::storage::{Body, Key, Revision, StoreError, Stored, World};
use expiry::EventLeases;

/// Write access to the state of a [`Reader`].
#[derive(Debug)]
pub(crate) struct Writer {
    reader: Arc<Reader>,
    /// Expiry times of Events.
    pub(crate) event_leases: EventLeases,
}

impl Writer {
    pub(super) fn new(reader: Arc<Reader>, event_ttl: Option<Duration>) -> Self {
        Self {
            reader,
            event_leases: EventLeases::new(event_ttl),
        }
    }

    /// Removes the history up to `revision`. Watches and continue tokens with earlier revisions return 410.
    pub(crate) fn compact(&self, revision: Revision) {
        self.reader.store.compact(revision);
        // Idle watchers need not be woken, because they have received all changes. Watchers that lag behind are not
        // idle.
    }

    /// Stores a new object.
    pub(super) fn insert(&self, row: &Row, key: Key, body: Body) -> Result<Arc<Stored>, StoreError> {
        self.reader.note_time();
        let stored = self.reader.store.create(&row.storage, key, body)?;
        self.event_written(row, &stored.key, stored.revision);
        self.wake(row, &stored.key);
        Ok(stored)
    }

    /// Replaces `old` with an object, if `old` is still stored.
    pub(super) fn replace(&self, row: &Row, old: &Stored, body: Body) -> Result<Arc<Stored>, StoreError> {
        self.reader.note_time();
        let stored = self.reader.store.update(&row.storage, &old.key, old.revision, body)?;
        self.event_written(row, &stored.key, stored.revision);
        self.wake(row, &stored.key);
        Ok(stored)
    }

    /// Removes `old`, if it is still stored.
    pub(super) fn remove(&self, row: &Row, old: &Stored) -> Result<Revision, StoreError> {
        self.reader.note_time();
        let revision = self.reader.store.delete(&row.storage, &old.key, old.revision)?;
        self.event_removed(row, &old.key);
        self.wake(row, &old.key);
        Ok(revision)
    }

    /// Replaces all stored objects. Watches end at their next poll.
    pub(super) fn replace_all(&self, world: World) {
        self.reader.store.replace(world);
        self.reader.restart_compaction();
    }

    /// Wakes all watchers, and the readers waiting for a revision.
    pub(super) fn wake_all(&self) {
        self.reader.fanout.wake_all();
        self.reader.committed.notify_waiters();
    }

    /// Wakes the watchers of an object, and the readers waiting for a revision. If the commit advances the stale view
    /// of a client, wakes all watchers.
    fn wake(&self, row: &Row, key: &Key) {
        match self.reader.replicas.move_with_commits() {
            true => self.reader.fanout.wake_all(),
            false => self.reader.fanout.wake(&row.storage, key),
        }
        self.reader.committed.notify_waiters();
    }
}
