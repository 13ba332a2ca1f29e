//! Compaction by time, as kube-apiserver requests it from etcd: after `compactor` of
//! k8s.io/apiserver/pkg/storage/etcd3.
//!
//! Each interval removes the revisions from before the previous interval: exact lists and continue tokens of these
//! revisions are answered 410. Watches are served from the watch cache, which is bounded by size only.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Reader;
use crate::registry::scheme::Row;
use crate::storage::{Compacted, ResourceSnapshot, Revision};

/// Past intervals, counted at each read and write, so that an idle server needs no timer.
#[derive(Debug)]
pub(in crate::registry) struct Compaction {
    /// `None` disables compaction by age.
    interval: Option<Duration>,
    /// Guards the marks.
    marks: Mutex<Marks>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// The number of the newest interval that was checked, and the revision at its start.
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

    /// Records the time of a revision that is about to become old, or to be read together with old ones. Returns the
    /// lowest revision that is kept.
    fn advance(&self, now: Duration, revision: Revision) -> Revision {
        let Some(interval) = self.interval else { return 0 };
        let number = u64::try_from(now.as_nanos() / interval.as_nanos()).unwrap_or(u64::MAX);
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        match marks.newest {
            Some((newest, _)) if newest == number => {}
            // Nothing was written in the intervals in between, so each of them starts with this revision.
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
    /// Restarts the intervals after the state was replaced.
    pub(in crate::registry) fn restart_compaction(&self) {
        self.compaction.restart();
    }

    /// Records the time before a write.
    pub(in crate::registry) fn note_time(&self) {
        self.compaction.advance(self.entropy.elapsed(), self.store.revision());
    }

    /// The objects of a resource in etcd at a revision, unless the revision has been compacted.
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
