//! `History`: the bounded log of one resource. Watchers read it; lists of the past are made from it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::dropped::{Dropped, ResourcePart};
use super::{Change, Revision};

/// The revision asked for lies below the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compacted {
    /// The oldest revision one may watch from.
    pub(crate) floor: Revision,
}

/// The changes of one resource above `floor`, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    changes: VecDeque<Arc<Change>>,
    /// The oldest revision one may watch from: every later change is in `changes`.
    floor: Revision,
    /// The sizes of the changes.
    size: usize,
    /// Changes that were dropped; shared by the copies that snapshots make.
    dropped: Arc<Dropped>,
}

impl History {
    /// An empty log of a resource that begins at `floor`.
    pub(crate) fn new(floor: Revision) -> Self {
        Self {
            changes: VecDeque::new(),
            floor,
            size: 0,
            dropped: Arc::default(),
        }
    }

    /// The most bytes that are kept because of it.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of changes.
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// The revision of its first change.
    pub(crate) fn oldest(&self) -> Option<Revision> {
        self.changes.front().map(|it| it.revision)
    }

    /// Adds a change; returns the bytes it grew by.
    pub(crate) fn push(&mut self, change: Arc<Change>) -> usize {
        let size = change.size();
        self.size += size;
        self.changes.push_back(change);
        size
    }

    /// Drops all changes but the newest `count`; returns the bytes it shrank by.
    pub(crate) fn keep_newest(&mut self, count: usize) -> usize {
        let before = self.size;
        while self.changes.len() > count {
            self.drop_oldest();
        }
        before - self.size
    }

    fn drop_oldest(&mut self) {
        if let Some(dropped) = self.changes.pop_front() {
            self.floor = dropped.revision;
            self.size -= dropped.size();
            Arc::make_mut(&mut self.dropped).add(&dropped);
        }
    }

    /// Forgets the changes up to and including `revision`.
    pub(crate) fn compact(&mut self, revision: Revision) {
        if revision > self.floor {
            while self.oldest().is_some_and(|it| it <= revision) {
                self.drop_oldest();
            }
            self.floor = revision;
        }
    }

    /// The changes after `revision` that have not been forgotten, oldest first.
    pub(crate) fn retained_after(&self, revision: Revision) -> impl Iterator<Item = &Arc<Change>> {
        let first = self.changes.partition_point(|it| it.revision <= revision);
        self.changes.range(first..)
    }

    /// The same for a reader of `part` that has seen all changes up to `revision`: an error if a change of that part
    /// has been forgotten since, and not because the log begins later.
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

    /// The changes after `revision`, oldest first, or the floor if some of them are gone.
    pub(crate) fn after(&self, revision: Revision) -> Result<impl DoubleEndedIterator<Item = &Arc<Change>>, Compacted> {
        if revision < self.floor {
            return Err(Compacted { floor: self.floor });
        }
        // Most readers want the newest few: find the start from the end.
        let fresh = self
            .changes
            .iter()
            .rev()
            .take_while(|it| it.revision > revision)
            .count();
        Ok(self.changes.range(self.changes.len() - fresh..))
    }
}
