//! `Gate`: holds keys back until the caches have seen what was written for them (KEP-5647).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::writes::{Write, Written};
use crate::{ObjectKey, ResourceVersion};

/// State of a cache.
pub(crate) trait CacheState: Send + Sync + 'static {
    /// Returns `true` if it has the object of this key, or may come to have it with these labels, as far as they are
    /// known.
    fn may_have(&self, key: &ObjectKey, labels: Option<&BTreeMap<String, String>>) -> bool;

    /// The version up to which it has all changes of the object of this key.
    fn resource_version(&self, key: &ObjectKey) -> ResourceVersion;

    /// The uid of the object of this key, if there is one.
    fn uid(&self, key: &ObjectKey) -> Option<String>;

    /// Returns `true` if it has an object of this key that is being deleted.
    fn is_deleting(&self, key: &ObjectKey) -> bool;

    /// The time at which the server was last found restored from a backup: what was written before is lost, or will not
    /// be told.
    fn restored(&self, key: &ObjectKey) -> Option<Instant>;

    /// Returns `true` if it shows no state from before this write.
    fn has_seen(&self, write: &Write) -> bool {
        if !self.may_have(&write.key, write.labels.as_ref()) || self.restored(&write.key) >= Some(write.at) {
            return true;
        }
        let is_at = |version: &ResourceVersion| is_reached(&self.resource_version(&write.key), version);
        let is_gone = |uid: &String| self.uid(&write.key).is_none_or(|it| it != *uid);
        match &write.what {
            Written::Version(version) => is_at(version),
            Written::Terminating { version, floor, uid } => is_at(version) || is_at(floor) && is_gone(uid),
            Written::Gone { floor, uid } => is_at(floor) && is_gone(uid),
            Written::Deleted { floor, uid } => is_at(floor) && (is_gone(uid) || self.is_deleting(&write.key)),
            Written::Absent => self.uid(&write.key).is_none(),
            Written::Unknown(_) => false,
        }
    }
}

/// Time for which a key is held back before that counts as a failure: more than two bookmarks, which a cache with only
/// part of the objects may need to learn of a write to another part.
const PATIENCE: Duration = Duration::from_secs(150);

/// The first pause after which a held key is looked at again, and the last. An event of the write comes sooner, mostly.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// The caches of a controller by resource as in a path: `apps/deployments`. A resource has several where informers have
/// a part of the objects each, or another form of them.
pub(crate) type Caches = HashMap<String, Vec<Arc<dyn CacheState>>>;

/// Writes for each key that are not in the caches yet. Bounded by the objects that one reconcile writes and by the keys
/// with a write that the caches have not seen: the others are swept out.
pub(crate) struct Gate<R> {
    caches: Caches,
    /// Guards the writes.
    unseen: Mutex<AllUnseen<R>>,
}

struct AllUnseen<R> {
    /// Never iterated but to sweep.
    keys: HashMap<R, Unseen, RandomState>,
    /// Number of keys at which they are swept.
    sweep_at: usize,
}

/// As many keys may stay that wrote and did not come again.
const SWEEP_AT: usize = 64;

struct Unseen {
    writes: Vec<Write>,
    since: Instant,
    pause: Duration,
}

/// Decision on whether a key may be worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    Open,
    /// The outcome of a write is unknown: [`Gate::ask`], then look again.
    Ask,
    /// Look again after this time.
    Held(Duration),
    /// It was held back too long; the text says by what. The next look lets it pass.
    Stuck(String),
}

impl<R: Clone + Eq + Hash> Gate<R> {
    pub(crate) fn new(caches: Caches) -> Self {
        Self {
            caches,
            unseen: Mutex::new(AllUnseen {
                keys: HashMap::default(),
                sweep_at: SWEEP_AT,
            }),
        }
    }

    /// `has_asked` says that the server was asked just now.
    pub(super) fn look(&self, key: &R, has_asked: bool) -> Passage {
        let mut all = self.lock();
        if all.keys.is_empty() {
            return Passage::Open;
        }
        let Some(unseen) = all.keys.get_mut(key) else {
            return Passage::Open;
        };
        unseen.writes.retain(|write| !self.has_seen(write));
        let Some(write) = unseen.writes.first() else {
            all.keys.remove(key);
            return Passage::Open;
        };
        if unseen.since.elapsed() > PATIENCE {
            let why = self.missing(write);
            let why = format!("{why}, made {:.0?} ago", unseen.since.elapsed());
            // A cache that has stopped must not stop the key for ever.
            all.keys.remove(key);
            return Passage::Stuck(why);
        }
        if !has_asked && unseen.writes.iter().any(Write::is_unknown) {
            return Passage::Ask;
        }
        let pause = unseen.pause;
        unseen.pause = (pause * 2).min(PAUSES.1);
        Passage::Held(pause)
    }

    /// Reads the present state from the server where the outcome of a write of this key is unknown. A server that does
    /// not answer is asked again with the next look.
    pub(super) async fn ask(&self, key: &R) {
        let unknown: Vec<Write> = {
            let all = self.lock();
            let writes = all.keys.get(key).map(|it| it.writes.as_slice()).unwrap_or_default();
            writes.iter().filter(|it| it.is_unknown()).cloned().collect()
        };
        for write in unknown {
            let (object, resource) = (write.key.clone(), write.resource.clone());
            let learnt = write.learn().await;
            if let Some(unseen) = self.lock().keys.get_mut(key) {
                Write::settle(&mut unseen.writes, &object, &resource, learnt);
            }
        }
    }

    /// Remembers what was written for a key.
    pub(super) fn remember(&self, key: &R, mut writes: Vec<Write>) {
        // What no cache has cannot be stale, and what the cache has seen meanwhile need not be kept.
        writes.retain(|write| !self.has_seen(write));
        if writes.is_empty() {
            return;
        }
        let mut all = self.lock();
        if all.keys.len() >= all.sweep_at {
            all.keys.retain(|_, unseen| {
                unseen.writes.retain(|write| !self.has_seen(write));
                !unseen.writes.is_empty() && unseen.since.elapsed() <= PATIENCE
            });
            all.sweep_at = SWEEP_AT.max(all.keys.len() * 2);
            let room = all.sweep_at;
            all.keys.shrink_to(room);
        }
        let unseen = Unseen {
            writes,
            since: Instant::now(),
            pause: PAUSES.0,
        };
        all.keys.insert(key.clone(), unseen);
    }

    /// Returns `true` if all caches that may show the state before a write have seen it.
    fn has_seen(&self, write: &Write) -> bool {
        self.behind(write).is_none()
    }

    /// A cache that has not seen the write.
    fn behind(&self, write: &Write) -> Option<&dyn CacheState> {
        let mut caches = self.caches.get(&write.resource).into_iter().flatten();
        caches.find(|it| !it.has_seen(write)).map(AsRef::as_ref)
    }

    /// Describes what a write waits for.
    fn missing(&self, write: &Write) -> String {
        let (resource, key) = (write.resource.trim_start_matches('/'), &write.key);
        let at = self
            .behind(write)
            .map(|it| it.resource_version(key))
            .unwrap_or_default();
        match &write.what {
            Written::Version(version) | Written::Terminating { version, .. } => {
                format!(
                    "the cache of {resource} is at version {at} and has not seen version {version} of {key}, our write"
                )
            }
            Written::Gone { .. } | Written::Absent => {
                format!("the cache of {resource} is at version {at} and has not seen that {key} is gone")
            }
            Written::Deleted { .. } => {
                format!("the cache of {resource} is at version {at} and has not seen that {key} was deleted")
            }
            Written::Unknown(_) => {
                format!(
                    "the server has not said its version after our write to {resource} {key}, whose answer was lost"
                )
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, AllUnseen<R>> {
        self.unseen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Incomparable or missing versions hold back no key.
fn is_reached(at: &ResourceVersion, version: &ResourceVersion) -> bool {
    if version.is_empty() {
        return true;
    }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A cache that is as far as the number says.
    #[derive(Default)]
    struct Cache(AtomicU64);

    impl CacheState for Cache {
        fn may_have(&self, _: &ObjectKey, _: Option<&BTreeMap<String, String>>) -> bool {
            true
        }

        fn resource_version(&self, _: &ObjectKey) -> ResourceVersion {
            ResourceVersion::from(self.0.load(Ordering::Relaxed).to_string().as_str())
        }

        fn uid(&self, _: &ObjectKey) -> Option<String> {
            None
        }

        fn is_deleting(&self, _: &ObjectKey) -> bool {
            false
        }

        fn restored(&self, _: &ObjectKey) -> Option<Instant> {
            None
        }
    }

    fn write(version: u64) -> Vec<Write> {
        let version = ResourceVersion::from(version.to_string().as_str());
        vec![Write {
            resource: "/pods".to_owned(),
            key: ObjectKey::cluster("a"),
            labels: None,
            at: Instant::now(),
            what: Written::Version(version),
        }]
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_wrote_and_do_not_come_again_are_forgotten_and_the_others_are_not() {
        let cache = Arc::new(Cache::default());
        let state: Arc<dyn CacheState> = cache.clone();
        let gate = Gate::new(HashMap::from([("/pods".to_owned(), vec![state])]));
        for number in 1..=10_000_u64 {
            gate.remember(&number, write(number));
            // The cache is always three writes behind.
            cache.0.store(number.saturating_sub(3), Ordering::Relaxed);
        }
        assert!(gate.lock().keys.len() <= SWEEP_AT, "{}", gate.lock().keys.len());
        assert!(gate.lock().keys.capacity() <= SWEEP_AT * 4);
        assert_eq!(gate.look(&10_000, false), Passage::Held(PAUSES.0));
        // Those whose cache stands still go when they would have been let through.
        for number in 1..=10_000_u64 {
            gate.remember(&number, write(20_000));
        }
        tokio::time::advance(PATIENCE + Duration::from_secs(1)).await;
        for number in 20_001..=40_000_u64 {
            gate.remember(&number, write(number));
            cache.0.store(number - 3, Ordering::Relaxed);
        }
        assert!(gate.lock().keys.len() <= SWEEP_AT * 2, "{}", gate.lock().keys.len());
    }
}
