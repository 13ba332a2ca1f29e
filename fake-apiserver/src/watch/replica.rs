//! `Replicas`: the staleness of each client's view. It simulates several API servers: each client is connected to one
//! of them, and the watch cache of that server may lag behind etcd.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::storage::Revision;

/// Staleness of a client's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// The view does not advance beyond this revision.
    Frozen(Revision),
    /// The view is this many revisions behind the newest one.
    Behind(u64),
}

/// The clients with a stale view.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    /// The position of each client with a stale view.
    positions: Mutex<BTreeMap<String, Position>>,
    /// Number of clients with a stale view, readable without the lock.
    count: AtomicU64,
    /// Number of clients with [`Position::Behind`]. Their view advances with each commit.
    moving: AtomicU64,
}

impl Replicas {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Position>> {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the position of a client's view; `None` for a current view.
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

    /// Returns the revision of a client's view if the server is at `newest`.
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

    /// Returns `true` if a commit advances the stale view of any client.
    pub(crate) fn move_with_commits(&self) -> bool {
        self.moving.load(Ordering::Relaxed) > 0
    }
}

/// The view of one client. Its position is looked up at each use.
#[derive(Clone, Debug)]
pub(crate) struct Horizon {
    /// The positions of all clients.
    pub(crate) replicas: Arc<Replicas>,
    /// Name of the client.
    pub(crate) client: Arc<str>,
}

impl Horizon {
    /// Returns the revision of the client's view if the server is at `newest`.
    pub(crate) fn sees(&self, newest: Revision) -> Revision {
        self.replicas.sees(&self.client, newest)
    }
}
