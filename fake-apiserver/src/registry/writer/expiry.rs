//! Expiry of Events: an Event is deleted a fixed time after its last write, like its lease in etcd (`--event-ttl` of
//! kube-apiserver).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Writer;
use crate::registry::scheme::Row;
use crate::storage::{Key, KeyRange, Revision};

/// Storage name of Events, which both API groups share. They are the only objects that expire.
pub(in crate::registry) const EVENTS: &str = "events";

/// The expiry times of the stored Events; empty if Events do not expire.
#[derive(Debug)]
pub(crate) struct EventLeases {
    ttl: Option<Duration>,
    /// Expiry times; locked because requests may run on several threads.
    ends: Mutex<Ends>,
    /// Notified when the earliest expiry time changes.
    pub(crate) changed: Arc<Notify>,
    /// Number of Events that have expired.
    expired: AtomicU64,
    keeper: OnceLock<Keeper>,
}

#[derive(Clone, Debug, Default)]
struct Ends {
    /// Sorted by time, then by the order of the writes.
    by_time: BTreeMap<(Instant, Revision), Key>,
    by_key: BTreeMap<Key, (Instant, Revision)>,
}

/// The function that starts the task that deletes expired objects.
struct Keeper(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeper")
    }
}

impl Ends {
    /// Sets the expiry time of an object. If there were several writes, the latest one applies, regardless of the order
    /// of the calls.
    fn set(&mut self, key: &Key, end: (Instant, Revision)) {
        match self.by_key.get(key) {
            Some(known) if known.1 > end.1 => return,
            Some(known) => drop(self.by_time.remove(known)),
            None => {}
        }
        self.by_time.insert(end, key.clone());
        self.by_key.insert(key.clone(), end);
    }

    fn remove(&mut self, key: &Key) {
        if let Some(end) = self.by_key.remove(key) {
            self.by_time.remove(&end);
        }
    }

    fn first(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    /// Removes and returns the next expired entry.
    fn pop(&mut self, now: Instant) -> Option<(Key, Revision)> {
        let entry = self.by_time.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((_, revision), key) = entry.remove_entry();
        self.by_key.remove(&key);
        Some((key, revision))
    }
}

impl EventLeases {
    pub(super) fn new(ttl: Option<Duration>) -> Self {
        Self {
            ttl,
            ends: Mutex::default(),
            changed: Arc::default(),
            expired: AtomicU64::new(0),
            keeper: OnceLock::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ends> {
        // No user code runs while the lock is held, so the maps are consistent even after a panic.
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the function that starts the task that deletes expired Events. If there are Events, the function is called
    /// immediately and whenever the earliest expiry time changes, even if the task is already running.
    pub(crate) fn kept_by(&self, keeper: impl Fn() + Send + Sync + 'static) {
        let _ = self.keeper.set(Keeper(Box::new(keeper)));
        let first = self.lock().first();
        self.tell(first);
    }

    /// Copies the expiry times of another server's Events.
    pub(crate) fn adopt(&self, other: &Self) {
        let ends = other.lock().clone();
        let first = ends.first();
        *self.lock() = ends;
        self.tell(first);
    }

    /// Returns the number of Events that have expired.
    pub(crate) fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// Starts the timer task if there are Events, and notifies it that the earliest expiry time has changed.
    fn tell(&self, first: Option<Instant>) {
        if let (Some(_), Some(keeper)) = (first, self.keeper.get()) {
            (keeper.0)();
        }
        self.changed.notify_one();
    }

    /// Removes and returns the next expired Event, with the revision of its last write.
    pub(in crate::registry) fn pop(&self, now: Instant) -> Option<(Key, Revision)> {
        self.lock().pop(now)
    }

    /// Returns the earliest expiry time of all Events.
    pub(in crate::registry) fn first(&self) -> Option<Instant> {
        self.lock().first()
    }

    /// Counts an Event that has expired and was removed.
    pub(in crate::registry) fn count_expired(&self) {
        self.expired.fetch_add(1, Ordering::Relaxed);
    }

    fn change(&self, change: impl FnOnce(&mut Ends)) {
        let (before, after) = {
            let mut ends = self.lock();
            let before = ends.first();
            change(&mut ends);
            (before, ends.first())
        };
        if before != after {
            self.tell(after);
        }
    }
}

impl Writer {
    /// Called after a write: restarts the lifetime of an Event.
    pub(super) fn event_written(&self, row: &Row, key: &Key, revision: Revision) {
        if let (EVENTS, Some(ttl)) = (&*row.storage, self.event_leases.ttl)
            && let Some(end) = Instant::now().checked_add(ttl)
        {
            self.event_leases.change(|ends| ends.set(key, (end, revision)));
        }
    }

    /// Called after an object was removed: removes the expiry time of an Event.
    pub(super) fn event_removed(&self, row: &Row, key: &Key) {
        if *row.storage == *EVENTS && self.event_leases.ttl.is_some() {
            self.event_leases.change(|ends| ends.remove(key));
        }
    }

    /// Called after all stored objects were replaced: restarts the lifetime of each Event.
    pub(in crate::registry) fn events_replaced(&self) {
        let Some(end) = self.event_leases.ttl.and_then(|ttl| Instant::now().checked_add(ttl)) else {
            return;
        };
        let snapshot = self.reader.store.snapshot(EVENTS);
        self.event_leases.change(|ends| {
            *ends = Ends::default();
            for stored in snapshot.range(&KeyRange::of(None)) {
                ends.set(&stored.key, (end, stored.revision));
            }
        });
    }
}
