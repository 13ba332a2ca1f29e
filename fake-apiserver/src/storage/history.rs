//! `History`: the bounded log of one resource. Watchers read the log, and lists at earlier revisions are reconstructed
//! from it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::dropped::{Dropped, ResourcePart};
use super::{Change, Revision};

/// Error: the requested revision is older than the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compacted {
    /// The oldest revision from which a watch may start.
    pub(crate) floor: Revision,
}

/// The changes of one resource after `floor`, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    changes: VecDeque<Arc<Change>>,
    /// The oldest revision from which a watch may start: all later changes are in `changes`.
    floor: Revision,
    /// Total size of the changes, in bytes.
    size: usize,
    /// The newest dropped changes, shared with copies in snapshots.
    dropped: Arc<Dropped>,
}

impl History {
    /// Creates an empty log that begins at `floor`.
    pub(crate) fn new(floor: Revision) -> Self {
        Self {
            changes: VecDeque::new(),
            floor,
            size: 0,
            dropped: Arc::default(),
        }
    }

    /// Returns the approximate number of bytes retained for the log.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the oldest revision from which a watch may start.
    pub(crate) fn floor(&self) -> Revision {
        self.floor
    }

    /// Returns the number of changes.
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Returns the revision of the first change.
    pub(crate) fn oldest(&self) -> Option<Revision> {
        self.changes.front().map(|it| it.revision)
    }

    /// Adds a change, and returns the number of bytes by which the log has grown.
    pub(crate) fn push(&mut self, change: Arc<Change>) -> usize {
        let size = change.size();
        self.size += size;
        self.changes.push_back(change);
        size
    }

    /// Drops all but the newest `count` changes, and returns the number of bytes freed.
    pub(crate) fn keep_newest(&mut self, count: usize) -> usize {
        let before = self.size;
        while self.changes.len() > count {
            self.drop_oldest();
        }
        before - self.size
    }

    fn drop_oldest(&mut self) {
        if let Some(dropped) = self.changes.pop_front() {
            self.floor = self.floor.max(dropped.revision);
            self.size -= dropped.size();
            Arc::make_mut(&mut self.dropped).add(&dropped);
        }
    }

    /// Refuses new readers from before `revision`. Open watches can still read older changes until these exceed the
    /// log's limits. In kube-apiserver, the watch cache has its own copy of the changes, which etcd does not compact.
    pub(crate) fn compact(&mut self, revision: Revision) {
        self.floor = self.floor.max(revision);
    }

    /// Returns the retained changes after `revision`, oldest first.
    pub(crate) fn retained_after(&self, revision: Revision) -> impl Iterator<Item = &Arc<Change>> {
        self.changes.range(self.first_after(revision)..)
    }

    /// Returns the index of the first change after `revision`. Readers usually need only the newest changes, but a
    /// reader that is far behind reads the log in batches, so it must not scan the rest of the log for each batch.
    fn first_after(&self, revision: Revision) -> usize {
        const NEWEST: usize = 8;
        let mut first = self.changes.len();
        while first > 0 && self.changes[first - 1].revision > revision {
            if self.changes.len() - first == NEWEST {
                return self.changes.partition_point(|it| it.revision <= revision);
            }
            first -= 1;
        }
        first
    }

    /// Same as [`after`](Self::after), for a reader of `part` that has read all changes up to `revision`: only fails if
    /// a later change of that part was dropped.
    pub(crate) fn unless_missed(
        &self,
        revision: Revision,
        part: ResourcePart<'_>,
    ) -> Result<impl Iterator<Item = &Arc<Change>>, Compacted> {
        if revision < self.floor && revision < self.dropped.newest(part) {
            return Err(Compacted { floor: self.floor });
        }
        Ok(self.retained_after(revision))
    }

    /// Returns the changes after `revision`, oldest first; fails with the floor if some of them were dropped.
    pub(crate) fn after(&self, revision: Revision) -> Result<impl DoubleEndedIterator<Item = &Arc<Change>>, Compacted> {
        if revision < self.floor {
            return Err(Compacted { floor: self.floor });
        }
        Ok(self.changes.range(self.first_after(revision)..))
    }
}
