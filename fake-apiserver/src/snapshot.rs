//! `Snapshot`: the state of a server as a value, and the snapshots that the control API keeps.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::registry::ReadDefinitions;
use crate::storage::{Revision, World};

/// Maximum number of saved states; when it is exceeded, the oldest one is dropped.
const KEPT_MAX: usize = 64;

/// The whole state of a server at one moment, from [`ApiServer::snapshot`](crate::ApiServer::snapshot). Taking a
/// snapshot costs one reference per resource and CRD, independent of the number of objects.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) world: World,
    /// The CRDs of the state, if they have been read.
    pub(crate) definitions: ReadDefinitions,
}

impl From<World> for Snapshot {
    fn from(world: World) -> Self {
        Self {
            world,
            definitions: ReadDefinitions::default(),
        }
    }
}

/// The states saved by the control API, by number.
#[derive(Debug, Default)]
pub(crate) struct KeptSnapshots {
    /// The number that was assigned last, and the states by their numbers.
    kept: Mutex<(u64, BTreeMap<u64, KeptSnapshot>)>,
    /// The newest revision of the initial objects.
    started_at: OnceLock<Revision>,
}

/// A state saved by the control API.
#[derive(Clone, Debug)]
pub(crate) struct KeptSnapshot {
    pub(crate) state: Snapshot,
    /// Time since the server's start, on its clock.
    pub(crate) at: Duration,
    pub(crate) revision: u64,
    pub(crate) objects: usize,
}

impl KeptSnapshots {
    /// Records the revision at which the server started. Only the first call has an effect.
    pub(crate) fn start_at(&self, revision: Revision) {
        self.started_at.get_or_init(|| revision);
    }

    /// Returns the newest revision of the initial objects.
    pub(crate) fn started_at(&self) -> Revision {
        self.started_at.get().copied().unwrap_or_default()
    }

    /// Saves a state, and returns its number.
    pub(crate) fn keep(&self, snapshot: KeptSnapshot) -> u64 {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.0 += 1;
        let number = kept.0;
        kept.1.insert(number, snapshot);
        while kept.1.len() > KEPT_MAX {
            kept.1.pop_first();
        }
        number
    }

    /// Returns the state with this number, unless it was dropped.
    pub(crate) fn get(&self, number: u64) -> Option<Snapshot> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.1.get(&number).map(|it| it.state.clone())
    }

    /// Returns all saved states with their numbers, oldest first.
    pub(crate) fn all(&self) -> Vec<(u64, KeptSnapshot)> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.1.iter().map(|(number, it)| (*number, it.clone())).collect()
    }
}
