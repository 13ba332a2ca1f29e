//! `Gate`: holds keys back until the caches have received the writes made for them (KEP-5647).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::collection::Collection;
use super::write::{Write, Written};
use crate::{ObjectKey, ResourceVersion};

/// State of a cache.
pub(crate) trait CacheState: Send + Sync + 'static {
    /// Returns `true` if the cache contains the object with this key, or may contain it with these labels, if they are
    /// known.
    fn may_have(&self, key: &ObjectKey, labels: Option<&BTreeMap<String, String>>) -> bool;

    /// Returns the version up to which it contains all changes of the object with this key.
    fn resource_version(&self, key: &ObjectKey) -> ResourceVersion;

    /// Returns the uid of the object with this key, if it exists.
    fn uid(&self, key: &ObjectKey) -> Option<String>;

    /// Returns `true` if it contains an object with this key that is being deleted.
    fn is_deleting(&self, key: &ObjectKey) -> bool;

    /// Returns the time at which a restore of the server from a backup was last detected: earlier writes are lost, or
    /// will not be delivered.
    fn restored(&self, key: &ObjectKey) -> Option<Instant>;

    /// Returns `true` if the cache receives no further changes.
    fn has_ended(&self) -> bool {
        false
    }

    /// Returns `true` if it does not contain a state from before this write.
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
            Written::Absent { floor } => self.uid(&write.key).is_none() || !floor.is_empty() && is_at(floor),
            Written::Unknown(_) => false,
        }
    }
}

/// Time for which a key is held back before it fails. More than two bookmark intervals, because a cache with only a
/// part of the objects may need them to advance past a write to another part.
const PATIENCE: Duration = Duration::from_secs(150);

/// Minimum and maximum delay between checks of a held key. Usually an event of the write triggers the check earlier.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// The caches of a controller. A collection has several if informers have different parts or forms of its objects. Only
/// iterated in order to drop ended ones.
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

    /// Returns `true` if all caches that may contain an older state have received a write.
    fn have_seen(&self, write: &Write) -> bool {
        self.behind(write).is_none()
    }

    /// Returns a cache that has not received the write.
    fn behind(&self, write: &Write) -> Option<&dyn CacheState> {
        let mut caches = self.0.get(&write.collection).into_iter().flatten();
        caches.find(|it| !it.has_seen(write)).map(AsRef::as_ref)
    }
}

/// Writes for each key that the caches have not received yet. Bounded by the number of objects that one reconcile
/// writes and by the number of keys with such writes: other entries are removed within ten seconds.
pub(crate) struct Gate<R> {
    /// Set once there is a cache; until then keys and their writes are ignored.
    has_caches: AtomicBool,
    /// Guards the caches and the writes.
    state: Mutex<State<R>>,
    /// Notified when the first key is recorded.
    filled: Notify,
}

struct State<R> {
    caches: Caches,
    /// Only iterated to sweep.
    keys: HashMap<R, Unseen, RandomState>,
}

/// Interval between sweeps of keys with writes that were not added again.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

struct Unseen {
    writes: Vec<Write>,
    since: Instant,
    pause: Duration,
}

impl Unseen {
    /// Returns the age at which a sweep removes the entry. The next check of a key that is held back must find its
    /// entry and fail, and may be late if all workers are busy.
    fn patience(&self) -> Duration {
        if self.pause > PAUSES.0 { PATIENCE * 2 } else { PATIENCE }
    }
}

/// Decision on whether a key may be worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    Open,
    /// The outcome of a write is unknown: call [`Gate::ask`], then check again.
    Ask,
    /// Check again after this time.
    Held(Duration),
    /// The key was held back too long; the text names the cause. The next check lets it pass.
    Stuck(String),
}

impl<R: Clone + Eq + Hash> Gate<R> {
    pub(crate) fn new(caches: Caches) -> Self {
        Self {
            has_caches: AtomicBool::new(!caches.0.is_empty()),
            state: Mutex::new(State {
                caches,
                keys: HashMap::default(),
            }),
            filled: Notify::new(),
        }
    }

    /// Periodically sweeps keys with writes that were not added again. Never returns; it has no timer while there are
    /// no keys.
    pub(super) async fn sweep(&self) {
        loop {
            if self.lock().keys.is_empty() {
                self.filled.notified().await;
            }
            sleep(SWEEP_EVERY).await;
            let mut state = self.lock();
            let State { caches, keys } = &mut *state;
            keys.retain(|_, unseen| {
                unseen.writes.retain(|write| !caches.have_seen(write));
                !unseen.writes.is_empty() && unseen.since.elapsed() <= unseen.patience()
            });
            keys.shrink_to_fit();
        }
    }

    /// Adds a cache to wait for; it applies to writes that are recorded from now on.
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

    /// Checks a key. `has_asked` is set if the server was asked immediately before.
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
            // A cache that has stopped must not block the key forever.
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

    /// Reads the present state from the server if the outcome of a write of this key is unknown. If the server does not
    /// answer, the next check retries.
    pub(super) async fn ask(&self, key: &R) {
        let unknown: Vec<Write> = {
            let all = self.lock();
            let writes = all.keys.get(key).map(|it| it.writes.as_slice()).unwrap_or_default();
            writes.iter().filter(|it| it.is_unknown()).cloned().collect()
        };
        let settle = |write: &Write, learnt| {
            if let Some(unseen) = self.lock().keys.get_mut(key) {
                Write::settle(&mut unseen.writes, write, learnt);
            }
        };
        Write::learn_all(unknown, settle).await;
    }

    /// Records the writes made for a key.
    pub(super) fn remember(&self, key: &R, mut writes: Vec<Write>) {
        if writes.is_empty() {
            return;
        }
        let mut state = self.lock();
        let State { caches, keys } = &mut *state;
        // Objects without a cache cannot be stale, and writes that the caches have received need not be kept.
        writes.retain(|write| !caches.have_seen(write));
        if writes.is_empty() {
            return;
        }
        let unseen = Unseen {
            writes,
            since: Instant::now(),
            pause: PAUSES.0,
        };
        let is_first = keys.is_empty();
        keys.insert(key.clone(), unseen);
        if is_first {
            self.filled.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write {
    /// Describes the missing writes.
    fn missing_in(&self, cache: Option<&dyn CacheState>) -> String {
        let (collection, key) = (&self.collection, &self.key);
        let at = cache.map(|it| it.resource_version(key)).unwrap_or_default();
        let has_not_seen = format!("the cache of {collection} is at version {at} and has not received");
        match &self.what {
            Written::Version(version) | Written::Terminating { version, .. } => {
                format!("{has_not_seen} version {version} of {key}, our write")
            }
            Written::Gone { .. } | Written::Absent { .. } => format!("{has_not_seen} that {key} is gone"),
            Written::Deleted { .. } => format!("{has_not_seen} that {key} was deleted"),
            Written::Unknown(_) => {
                format!(
                    "the answer to our write to {collection} {key} was lost, and the server has not returned its \
                     current version"
                )
            }
        }
    }
}

/// Returns `true` if a key need not wait for a cache at the version `at`: if `version` is reached or missing, or if the
/// two cannot be compared. A cache without a version has not reached any.
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

    /// A cache at the version with this number.
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
    async fn key_that_is_held_too_long_fails_despite_the_sweep() {
        let (cache, gate) = (Arc::new(Cache::default()), Arc::new(Gate::new(Caches::default())));
        gate.join(pods(), cache);
        let sweeping = Arc::clone(&gate);
        tokio::spawn(async move { sweeping.sweep().await });
        gate.remember(&0, write(9));
        // Held from just before a sweep, so that the last check is just after one.
        tokio::time::sleep(Duration::from_millis(9_900)).await;
        gate.remember(&1, write(9));
        let start = Instant::now();
        let passage = loop {
            match gate.look(&1, false) {
                Passage::Held(pause) => sleep(pause).await,
                other => break other,
            }
        };
        assert!(
            matches!(passage, Passage::Stuck(_)),
            "{passage:?} after {:?}",
            start.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn writes_of_keys_that_are_never_added_again_are_removed() {
        let (cache, gate) = (Arc::new(Cache::default()), Arc::new(Gate::new(Caches::default())));
        gate.join(pods(), cache.clone());
        let sweeping = Arc::clone(&gate);
        tokio::spawn(async move { sweeping.sweep().await });
        (1..=10_000_u64).for_each(|it| gate.remember(&it, write(it)));
        tokio::time::sleep(SWEEP_EVERY * 2).await;
        assert_eq!(gate.lock().keys.len(), 10_000, "the cache has seen none of the writes");
        // The cache catches up, and keys are neither added nor checked any more.
        cache.0.store(9_997, Ordering::Relaxed);
        tokio::time::sleep(SWEEP_EVERY * 2).await;
        assert_eq!(gate.lock().keys.len(), 3);
        assert!(gate.lock().keys.capacity() < 64);
        assert_eq!(gate.look(&10_000, false), Passage::Held(PAUSES.0));
        // A cache that does not advance must not hold a key forever.
        tokio::time::sleep(PATIENCE * 2 + SWEEP_EVERY * 2).await;
        assert_eq!(gate.lock().keys.len(), 0);
    }
}
