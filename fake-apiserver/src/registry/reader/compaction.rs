//! Compaction by time, as kube-apiserver asks it of etcd: after `compactor` of k8s.io/apiserver/pkg/storage/etcd3.
//!
//! At each interval, revisions from before the previous interval are forgotten: exact lists and continue tokens of
//! those are answered 410. Watches are served from the watch cache, which is bounded by size alone.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Reader;
use crate::registry::scheme::Row;
use crate::storage::{Compacted, ResourceSnapshot, Revision};

/// Past intervals, counted at each read and write, so that an idle server needs no timer.
#[derive(Debug)]
pub(in crate::registry) struct Compaction {
    /// `None`: nothing is forgotten by time.
    interval: Option<Duration>,
    /// Guards the marks.
    marks: Mutex<Marks>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    /// The number of the newest interval that was looked at, and the revision at its start.
    newest: Option<(u64, Revision)>,
    /// Revisions below this one are forgotten.
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

    /// Notes the time at a revision that is about to become an old one, or to be read beside old ones. Returns the
    /// lowest revision that is not forgotten.
    fn advance(&self, now: Duration, revision: Revision) -> Revision {
        let Some(interval) = self.interval else { return 0 };
        let number = u64::try_from(now.as_nanos() / interval.as_nanos()).unwrap_or(u64::MAX);
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        match marks.newest {
            Some((newest, _)) if newest == number => {}
            // Nothing was written in the intervals between: at the start of each the revision was this one.
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

    /// Notes the time before a write.
    pub(in crate::registry) fn note_time(&self) {
        self.compaction.advance(self.entropy.elapsed(), self.store.revision());
    }

    /// The objects of a resource as etcd has them at a revision, unless it has forgotten them.
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
