//! Contents of the external systems of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use tokio::time::Instant;

use crate::lock::lock;

/// Contents of all external systems, by name.
pub(crate) type Contents = BTreeMap<String, Kept>;

/// The objects of an external system, by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) objects: BTreeMap<String, Value>,
    /// Keys that the system generated.
    pub(crate) generated: BTreeSet<String>,
}

/// The external systems of a cluster, shared with their handles.
#[derive(Debug, Default)]
pub(crate) struct Externals {
    /// Contents of all systems, by name.
    kept: Mutex<Contents>,
    /// Number of changes so far.
    changes: AtomicU64,
    /// Time of the last change or failed call.
    active: Mutex<Option<Instant>>,
}

impl Externals {
    /// Returns independent systems with the same contents.
    pub(crate) fn copy(&self) -> Self {
        Self {
            kept: Mutex::new(self.contents()),
            changes: AtomicU64::new(self.changes()),
            active: Mutex::new(*lock(&self.active)),
        }
    }

    /// Returns the contents of all systems.
    pub(crate) fn contents(&self) -> Contents {
        lock(&self.kept).clone()
    }

    /// Returns the number of changes so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns the time of the last change or failed call, if it is after `time`.
    pub(crate) fn active_after(&self, time: Instant) -> Option<Instant> {
        lock(&self.active).filter(|it| *it > time)
    }

    /// Calls `call` with the contents of the system `name`, which are initially empty.
    pub(crate) fn call<T>(&self, name: &str, call: impl FnOnce(&mut Kept) -> T) -> T {
        let mut all = lock(&self.kept);
        let kept = all.entry(name.to_owned()).or_default();
        let before = kept.objects.clone();
        let done = call(kept);
        if kept.objects != before {
            self.changes.fetch_add(1, Ordering::Relaxed);
            *lock(&self.active) = Some(Instant::now());
        }
        done
    }

    /// Records a failed call, after which the caller is likely to retry.
    pub(crate) fn failed(&self) {
        *lock(&self.active) = Some(Instant::now());
    }
}
