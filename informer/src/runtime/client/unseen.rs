//! `Unseen`: what a client wrote and caches have not seen yet.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::ObjectKey;
use crate::reconcile::{CacheState, Write};

/// Writes of a type that are remembered; beyond, the oldest is forgotten, and a read may answer with what was before
/// it.
const REMEMBERED: usize = 4096;

/// The writes of a client, by the resource as in a path, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    /// Guards the writes.
    writes: Mutex<BTreeMap<String, Vec<Write>>>,
}

impl Unseen {
    /// Remembers writes; of one object the last is the one that counts.
    pub(super) fn remember(&self, writes: &[Write]) {
        let mut all = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        for write in writes {
            let known = all.entry(write.collection.resource().to_owned()).or_default();
            known.retain(|it| it.key != write.key);
            if known.len() == REMEMBERED {
                known.remove(0);
            }
            known.push(write.clone());
        }
    }

    /// Asks the server for the outcome of those writes to a resource of which it is unknown.
    pub(super) async fn learn(&self, resource: &str) {
        let unknown: Vec<Write> = {
            let all = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
            let known = all.get(resource).into_iter().flatten();
            known.filter(|it| it.is_unknown()).cloned().collect()
        };
        for write in unknown {
            let learnt = write.learn().await;
            let mut all = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = all.get_mut(resource) {
                Write::settle(known, &write, learnt);
            }
        }
    }

    /// The first write, to this object or to any, that the cache has not seen. Forgets those that it has.
    pub(super) fn first(&self, resource: &str, key: Option<&ObjectKey>, cache: &impl CacheState) -> Option<Write> {
        let mut all = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get_mut(resource)?;
        known.retain(|write| !cache.has_seen(write));
        // A write of unknown outcome may be to objects that it does not name.
        let concerns = |write: &&Write, key: &ObjectKey| write.key == *key || write.key.name().is_empty();
        let first = known.iter().find(|it| key.is_none_or(|key| concerns(it, key)));
        let first = first.cloned();
        if known.is_empty() {
            all.remove(resource);
        }
        first
    }
}
