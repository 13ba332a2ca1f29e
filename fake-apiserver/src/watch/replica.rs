//! `Replicas`: the staleness of each client's view. Each client is connected to one of several API servers, and that
//! server's watch cache may lag behind etcd.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::storage::Revision;

/// Position of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Up to this revision.
    Frozen(Revision),
    /// All changes except for this number of the newest.
    Behind(u64),
}

/// The clients with a stale view.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    /// Guards the positions; clients with a current view do not have an entry.
    positions: Mutex<BTreeMap<String, Position>>,
    /// Number of clients, which can be read without the lock.
    count: AtomicU64,
    /// Number of clients that move with every commit.
    moving: AtomicU64,
}

impl Replicas {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Position>> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the position of a client's view; `None` is a current view.
    pub(crate) fn set(&self, client: &str, position: Option<Position>) {
        let mut positions = self.lock();
        match position {
            Some(position) => drop(positions.insert(client.to_owned(), position)),
            None => drop(positions.remove(client)),
        }
        let moving = positions.values().filter(|it| matches!(it, Position::Behind(_)));
        self.moving.store(moving.count() as u64, Ordering::Relaxed);
        self.count.store(positions.len() as u64, Ordering::Relaxed);
    }

    /// Returns the revision of a client's view of a state at `newest`.
    pub(crate) fn sees(&self, client: &str, newest: Revision) -> Revision {
        if self.count.load(Ordering::Relaxed) == 0 {
            return newest;
        }
        match self.lock().get(client) {
            None => newest,
            Some(Position::Frozen(revision)) => newest.min(*revision),
            Some(Position::Behind(changes)) => newest.saturating_sub(*changes),
        }
    }

    /// Returns `true` if a commit advances the view of some client to earlier commits.
    pub(crate) fn move_with_commits(&self) -> bool {
        self.moving.load(Ordering::Relaxed) > 0
    }
}

/// View of one client, looked up again at each use.
#[derive(Clone, Debug)]
pub(crate) struct Horizon {
    /// All clients.
    pub(crate) replicas: Arc<Replicas>,
    /// This one.
    pub(crate) client: Arc<str>,
}

impl Horizon {
    /// Returns the revision of the view of a state at `newest`.
    pub(crate) fn sees(&self, newest: Revision) -> Revision {
        self.replicas.sees(&self.client, newest)
    }
}
