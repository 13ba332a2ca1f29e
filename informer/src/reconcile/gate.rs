//! `Gate`: holds keys back until the caches have seen the writes made for them (KEP-5647).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::collection::Collection;
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

    /// Returns `true` if nothing more will come into it.
    fn has_ended(&self) -> bool {
        false
    }

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

/// The caches of a controller. A collection has several where informers have a part of the objects each, or another
/// form of them. Never iterated but to drop those that have ended.
#[derive(Default)]
pub(crate) struct Caches(HashMap<Collection, Vec<Arc<dyn CacheState>>>);

impl Caches {
    pub(crate) fn add(&mut self, collection: Collection, cache: Arc<dyn CacheState>) {
        self.0.entry(collection).or_default().push(cache);
    }

    fn drop_ended(&mut self) {
        self.0.retain(|_, caches| {
            caches.retain(|it| !it.has_ended());
            !caches.is_empty()
        });
    }

    /// Returns `true` if all caches that may show the state before a write have seen it.
    fn have_seen(&self, write: &Write) -> bool {
        self.behind(write).is_none()
    }

    /// A cache that has not seen the write.
    fn behind(&self, write: &Write) -> Option<&dyn CacheState> {
        let mut caches = self.0.get(&write.collection).into_iter().flatten();
        caches.find(|it| !it.has_seen(write)).map(AsRef::as_ref)
    }
}

/// Writes for each key that are not in the caches yet. Bounded by the objects that one reconcile writes and by the keys
/// with a write that the caches have not seen: the others are swept out.
pub(crate) struct Gate<R> {
    /// Set once there is a cache; until then no key has to be looked at, nor its writes.
    has_caches: AtomicBool,
    /// Guards the caches and the writes.
    state: Mutex<State<R>>,
}

struct State<R> {
    caches: Caches,
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
            has_caches: AtomicBool::new(!caches.0.is_empty()),
            state: Mutex::new(State {
                caches,
                keys: HashMap::default(),
                sweep_at: SWEEP_AT,
            }),
        }
    }

    /// Waits for this cache, too, as to what is remembered from now on.
    pub(crate) fn join(&self, collection: Collection, cache: Arc<dyn CacheState>) {
        let mut state = self.lock();
        state.caches.drop_ended();
        state.caches.add(collection, cache);
        self.has_caches.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if there is a cache to wait for.
    pub(super) fn has_caches(&self) -> bool {
        self.has_caches.load(Ordering::Relaxed)
    }

    /// `has_asked` says that the server was asked just now.
    pub(super) fn look(&self, key: &R, has_asked: bool) -> Passage {
        let mut state = self.lock();
        let State { caches, keys, .. } = &mut *state;
        if keys.is_empty() {
            return Passage::Open;
        }
        let Some(unseen) = keys.get_mut(key) else {
            return Passage::Open;
        };
        unseen.writes.retain(|write| !caches.have_seen(write));
        let Some(write) = unseen.writes.first() else {
            keys.remove(key);
            return Passage::Open;
        };
        if unseen.since.elapsed() > PATIENCE {
            let why = write.missing_in(caches.behind(write));
            let why = format!("{why}, made {:.0?} ago", unseen.since.elapsed());
            // A cache that has stopped must not stop the key for ever.
            keys.remove(key);
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
            let learnt = write.learn().await;
            if let Some(unseen) = self.lock().keys.get_mut(key) {
                Write::settle(&mut unseen.writes, &write, learnt);
            }
        }
    }

    /// Remembers the writes made for a key.
    pub(super) fn remember(&self, key: &R, mut writes: Vec<Write>) {
        if writes.is_empty() {
            return;
        }
        let mut state = self.lock();
        let State { caches, keys, sweep_at } = &mut *state;
        // Objects of no cache cannot be stale, and writes that the cache has seen need not be kept.
        writes.retain(|write| !caches.have_seen(write));
        if writes.is_empty() {
            return;
        }
        if keys.len() >= *sweep_at {
            keys.retain(|_, unseen| {
                unseen.writes.retain(|write| !caches.have_seen(write));
                !unseen.writes.is_empty() && unseen.since.elapsed() <= PATIENCE
            });
            *sweep_at = SWEEP_AT.max(keys.len() * 2);
            keys.shrink_to(*sweep_at);
        }
        let unseen = Unseen {
            writes,
            since: Instant::now(),
            pause: PAUSES.0,
        };
        keys.insert(key.clone(), unseen);
    }

    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write {
    /// Describes the writes it waits for.
    fn missing_in(&self, cache: Option<&dyn CacheState>) -> String {
        let (collection, key) = (&self.collection, &self.key);
        let at = cache.map(|it| it.resource_version(key)).unwrap_or_default();
        let has_not_seen = format!("the cache of {collection} is at version {at} and has not seen");
        match &self.what {
            Written::Version(version) | Written::Terminating { version, .. } => {
                format!("{has_not_seen} version {version} of {key}, our write")
            }
            Written::Gone { .. } | Written::Absent => format!("{has_not_seen} that {key} is gone"),
            Written::Deleted { .. } => format!("{has_not_seen} that {key} was deleted"),
            Written::Unknown(_) => {
                format!(
                    "the server has not said its version after our write to {collection} {key}, whose answer was lost"
                )
            }
        }
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
    use std::sync::atomic::AtomicU64;

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

    fn pods() -> Collection {
        Collection::new(None, "", "pods")
    }

    fn write(version: u64) -> Vec<Write> {
        let version = ResourceVersion::from(version.to_string().as_str());
        vec![Write {
            collection: pods(),
            key: ObjectKey::cluster("a"),
            labels: None,
            at: Instant::now(),
            what: Written::Version(version),
        }]
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_wrote_and_do_not_come_again_are_forgotten_and_the_others_are_not() {
        let cache = Arc::new(Cache::default());
        let gate = Gate::new(Caches::default());
        gate.join(pods(), cache.clone());
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
