//! `Dropped`: the newest changes that were dropped from a log. They show whether a reader has missed a change.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Change, Key, Revision};

/// Maximum number of namespaces, and of objects, for which the newest dropped change is recorded per resource. If there
/// are more, the older half of the records is removed; readers that last read before the removed changes are treated as
/// having missed a change.
const REMEMBERED_MAX: usize = 65_536;

/// The part of a resource that a reader observes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ResourcePart<'a> {
    /// All objects of the resource.
    All,
    /// The objects of one namespace.
    Namespace(&'a str),
    /// One object.
    Object(&'a Key),
}

/// The revisions of the newest dropped changes: of the whole resource, of each namespace and of each object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropped {
    last: Revision,
    namespaces: Newest<Arc<str>>,
    objects: Newest<Key>,
}

/// The revision of the newest dropped change for each key.
#[derive(Clone, Debug)]
struct Newest<K> {
    known: HashMap<K, Revision>,
    /// Upper bound for the revisions of removed records.
    forgotten: Revision,
}

impl<K> Default for Newest<K> {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            forgotten: 0,
        }
    }
}

impl Dropped {
    /// Records a dropped change. Changes must be dropped in order.
    pub(super) fn add(&mut self, change: &Change) {
        self.last = change.revision;
        let key = &change.object().key;
        let namespace = key.namespace();
        match self.namespaces.known.get_mut(namespace) {
            Some(newest) => *newest = change.revision,
            None => self.namespaces.add(namespace.into(), change.revision),
        }
        self.objects.add(key.clone(), change.revision);
    }

    /// Returns the revision of the newest dropped change of a part, or an upper bound; 0 if nothing was dropped.
    pub(super) fn newest(&self, part: ResourcePart<'_>) -> Revision {
        match part {
            ResourcePart::All => self.last,
            ResourcePart::Namespace(namespace) => self.namespaces.of(self.namespaces.known.get(namespace)),
            ResourcePart::Object(key) => self.objects.of(self.objects.known.get(key)),
        }
    }
}

impl<K: Eq + std::hash::Hash> Newest<K> {
    fn add(&mut self, key: K, revision: Revision) {
        self.known.insert(key, revision);
        if self.known.len() > REMEMBERED_MAX {
            let mut revisions: Vec<Revision> = self.known.values().copied().collect();
            let (_, middle, _) = revisions.select_nth_unstable(REMEMBERED_MAX / 2);
            self.forgotten = *middle;
            self.known.retain(|_, it| *it > self.forgotten);
        }
    }

    fn of(&self, known: Option<&Revision>) -> Revision {
        known.copied().unwrap_or(self.forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_forgotten_revision_is_returned_for_forgotten_keys() {
        let mut newest = Newest::default();
        let most = REMEMBERED_MAX as u64 + 1;
        for revision in 1..=most {
            newest.add(revision, revision);
        }
        assert!(newest.known.len() <= REMEMBERED_MAX);
        assert_eq!(newest.of(newest.known.get(&most)), most);
        assert_eq!(newest.of(newest.known.get(&1)), newest.forgotten);
        assert!((2..most).contains(&newest.forgotten));
    }
}
