//! `Dropped`: the newest changes that a log has dropped. They show whether a reader has missed a change.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Change, Key, Revision};

/// Maximum number of namespaces, and of objects, for which a resource records the newest dropped change. Above it the
/// older half of the records is removed, and a reader that last read before those changes is treated as having missed
/// one.
const REMEMBERED_MAX: usize = 65_536;

/// The part of a resource that a reader observes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ResourcePart<'a> {
    /// All objects.
    All,
    /// One namespace.
    Namespace(&'a str),
    /// One object.
    Object(&'a Key),
}

/// The newest dropped changes, overall and of each part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropped {
    last: Revision,
    namespaces: Newest<Arc<str>>,
    objects: Newest<Key>,
}

/// The newest change of each key.
#[derive(Clone, Debug)]
struct Newest<K> {
    known: HashMap<K, Revision>,
    /// Upper bound of the revisions of the removed records.
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
    /// Records a dropped change; changes are dropped in order.
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

    /// The newest dropped change of a part, or a newer one; 0 if nothing was dropped.
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
    fn removed_records_count_as_missed_changes() {
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
