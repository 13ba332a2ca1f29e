//! `Gate`: holds keys back until the caches have seen what was written for them (KEP-5647).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::writes::{Write, Written};
use crate::{ObjectKey, ResourceVersion};

/// How far a cache is.
pub(crate) trait CacheState: Send + Sync + 'static {
    /// Whether it has the object of this key, or may come to have it with these labels, as far as they are known.
    fn may_have(&self, key: &ObjectKey, labels: Option<&BTreeMap<String, String>>) -> bool;

    /// The version up to which it has all changes of the object of this key.
    fn resource_version(&self, key: &ObjectKey) -> ResourceVersion;

    /// The uid of the object of this key, if there is one.
    fn uid(&self, key: &ObjectKey) -> Option<String>;

    /// Whether it shows no state from before this write.
    fn has_seen(&self, write: &Write) -> bool {
        match &write.what {
            Written::Version(version) => {
                !self.may_have(&write.key, write.labels.as_ref())
                    || is_reached(&self.resource_version(&write.key), version)
            }
            Written::Gone { uid } => self.uid(&write.key).is_none_or(|it| it != *uid),
        }
    }
}

/// How long a key is held back before that counts as a failure: more than two bookmarks, which a cache that has a part
/// of the objects only may need to learn of a write to another part.
const PATIENCE: Duration = Duration::from_secs(150);

/// The first pause after which a held key is looked at again, and the last. An event of the write comes sooner, mostly.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// The caches of a controller by resource as in a path: `apps/deployments`. A resource has several where informers have
/// a part of the objects each, or another form of them.
pub(crate) type Caches = HashMap<String, Vec<Arc<dyn CacheState>>>;

/// What was written for each key and is not in the caches yet. Bounded by the keys of the queue and the objects that
/// one reconcile writes.
pub(crate) struct Gate<R> {
    caches: Caches,
    /// Guards the writes. Never iterated.
    unseen: Mutex<HashMap<R, Unseen, RandomState>>,
}

struct Unseen {
    writes: Vec<Write>,
    since: Instant,
    pause: Duration,
}

/// Whether a key may be worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    Open,
    /// Look again after this time.
    Held(Duration),
    /// It was held back too long; the text says by what.
    Stuck(String),
}

impl<R: Clone + Eq + Hash> Gate<R> {
    pub(crate) fn new(caches: Caches) -> Self {
        Self {
            caches,
            unseen: Mutex::default(),
        }
    }

    pub(super) fn look(&self, key: &R) -> Passage {
        let mut all = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            return Passage::Open;
        }
        let Some(unseen) = all.get_mut(key) else {
            return Passage::Open;
        };
        unseen.writes.retain(|write| !self.has_seen(write));
        let Some(write) = unseen.writes.first() else {
            all.remove(key);
            return Passage::Open;
        };
        if unseen.since.elapsed() > PATIENCE {
            return Passage::Stuck(format!(
                "the cache of {} has not seen our last write to {}, made {:?} ago",
                write.resource,
                write.key,
                unseen.since.elapsed()
            ));
        }
        let pause = unseen.pause;
        unseen.pause = (pause * 2).min(PAUSES.1);
        Passage::Held(pause)
    }

    /// Remembers what was written for a key.
    pub(super) fn remember(&self, key: &R, mut writes: Vec<Write>) {
        // What no cache has cannot be stale, and what the cache has seen meanwhile need not be kept.
        writes.retain(|write| !self.has_seen(write));
        if writes.is_empty() {
            return;
        }
        let mut all = self.unseen.lock().unwrap_or_else(PoisonError::into_inner);
        let unseen = Unseen {
            writes,
            since: Instant::now(),
            pause: PAUSES.0,
        };
        all.insert(key.clone(), unseen);
    }

    /// Whether all caches have seen a write of which they may show the state before it.
    fn has_seen(&self, write: &Write) -> bool {
        let mut caches = self.caches.get(&write.resource).into_iter().flatten();
        caches.all(|cache| cache.has_seen(write))
    }
}

/// Versions that cannot be compared hold nobody back.
fn is_reached(at: &ResourceVersion, version: &ResourceVersion) -> bool {
    match at.partial_cmp(version) {
        Some(order) => order.is_ge(),
        None => !at.is_empty(),
    }
}

impl<R> fmt::Debug for Gate<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}
