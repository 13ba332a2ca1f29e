//! Periodic compaction, which kube-apiserver requests from etcd (`compactor` of k8s.io/apiserver/pkg/storage/etcd3).
//!
//! At the start of each interval, the revisions before the previous interval are removed: lists at one of these
//! revisions and continue tokens for them return 410. Watches are served from the watch cache, which is limited by size
//! only.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Reader;
use crate::registry::scheme::Row;
use crate::storage::{Compacted, ResourceSnapshot, Revision};

/// The past intervals. They are updated before each write and each read of an old revision, so that an idle server does
/// not need a timer.
#[derive(Debug)]
pub(in crate::registry) struct Compaction {
    /// Length of an interval; `None` disables periodic compaction.
    interval: Option<Duration>,
    /// The revisions at which the last intervals began.
    marks: Mutex<Marks>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// Number of the latest interval, and the revision at its start.
    newest: Option<(u64, Revision)>,
    /// Revisions below this one are no longer available.
    floor: Revision,
}

impl Compaction {
    pub(in crate::registry) fn new(interval: Option<Duration>) -> Self {
        let interval = interval.filter(|it| !it.is_zero());
        Self {
            interval,
            marks: Mutex::default(),
        }
    }

    /// Updates the intervals before a write or a read of an old revision. `revision` is the current revision. Returns
    /// the lowest available revision.
    fn advance(&self, now: Duration, revision: Revision) -> Revision {
        let Some(interval) = self.interval else { return 0 };
        let number = u64::try_from(now.as_nanos() / interval.as_nanos()).unwrap_or(u64::MAX);
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        match marks.newest {
            Some((newest, _)) if newest == number => {}
            // Nothing was written in the skipped intervals, so `revision` is also the revision at the start of each of
            // them.
            Some((newest, _)) if newest + 1 < number => {
                (marks.newest, marks.floor) = (Some((number, revision)), revision);
            }
            Some((_, before)) => (marks.newest, marks.floor) = (Some((number, revision)), before),
            None => marks.newest = Some((number, revision)),
        }
        marks.floor
    }

    pub(super) fn restart(&self) {
        *self.marks.lock().unwrap_or_else(PoisonError::into_inner) = Marks::default();
    }
}

impl Reader {
    /// Restarts the intervals after all stored objects were replaced.
    pub(in crate::registry) fn restart_compaction(&self) {
        self.compaction.restart();
    }

    /// Updates the intervals before a write.
    pub(in crate::registry) fn note_time(&self) {
        self.compaction.advance(self.entropy.elapsed(), self.store.revision());
    }

    /// Returns the objects of a resource in etcd at a revision, unless the revision has been compacted.
    pub(in crate::registry) fn snapshot_of_etcd(
        &self,
        row: &Row,
        revision: Revision,
    ) -> Result<ResourceSnapshot, Compacted> {
        let floor = self.compaction.advance(self.entropy.elapsed(), self.store.revision());
        match revision < floor {
            true => Err(Compacted { floor }),
            false => self.store.snapshot_at(&row.storage, revision),
        }
    }
}
