//! `ResourceSnapshot`: the objects of one resource at a revision, for the pages of a list.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::sorted::Sorted;
use super::{Change, Key, KeyRange, Revision, Stored};

/// A resource at a revision: the current objects, without later changes.
#[derive(Clone, Debug)]
pub(crate) struct ResourceSnapshot {
    /// The revision of the snapshot.
    pub(crate) revision: Revision,
    objects: Sorted,
    /// Objects that have changed since the revision, in their earlier state; `None` if the object did not exist.
    undone: BTreeMap<Key, Option<Arc<Stored>>>,
}

impl ResourceSnapshot {
    /// Creates a snapshot of the current state.
    pub(crate) fn now(revision: Revision, objects: Sorted) -> Self {
        Self {
            revision,
            objects,
            undone: BTreeMap::new(),
        }
    }

    /// Creates a snapshot of the state before `later`, which contains all changes after `revision`, oldest first.
    pub(crate) fn before<'a>(
        revision: Revision,
        objects: Sorted,
        later: impl Iterator<Item = &'a Arc<Change>>,
    ) -> Self {
        let mut undone = BTreeMap::new();
        for change in later {
            // The first later change of a key contains the state at the revision.
            undone
                .entry(change.object().key.clone())
                .or_insert_with(|| change.previous.clone());
        }
        Self {
            revision,
            objects,
            undone,
        }
    }

    /// Returns the objects in a range, in key order.
    pub(crate) fn range<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a Arc<Stored>> {
        let mut present = self.objects.range(range).peekable();
        let mut undone = self
            .undone
            .iter()
            .filter(|(key, _)| range.contains(key.as_str()))
            .peekable();
        std::iter::from_fn(move || {
            loop {
                let Some((key, old)) = undone.peek() else {
                    return present.next();
                };
                match present.peek() {
                    Some(it) if it.key < **key => return present.next(),
                    Some(it) if it.key == **key => drop(present.next()),
                    _ => {}
                }
                let old = old.as_ref();
                undone.next();
                if old.is_some() {
                    return old;
                }
            }
        })
    }

    /// Returns the number of objects in a range.
    pub(crate) fn count(&self, range: &KeyRange) -> usize {
        let mut count = self.objects.count(range);
        for (key, old) in self.undone.iter().filter(|(key, _)| range.contains(key.as_str())) {
            count += usize::from(old.is_some());
            count -= usize::from(self.objects.get(key.as_str()).is_some());
        }
        count
    }
}
