//! `Gate`: holds back keys until the caches have received the writes of the keys' last reconciles (KEP-5647).

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::collection::Collection;
use super::write::{Write, Written};
use crate::cache_state::CacheState;
use crate::sync::Mutex;

/// Maximum time for which a key is held back. It is longer than two intervals between bookmarks, because a cache that
/// contains only some objects of a resource may need a bookmark to reach the version of a write to other objects.
const PATIENCE: Duration = Duration::from_secs(150);

/// Minimum and maximum delay between checks of a key that is held back. The key is usually checked earlier, because the
/// event of the write enqueues it again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// Caches of a controller. A resource has several caches if informers select different objects or different
/// representations of them. The map is only iterated to remove caches that have ended.
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

    /// Returns `true` if all caches of the written resource have received the write.
    fn have_seen(&self, write: &Write) -> bool {
        self.behind(write).is_none()
    }

    /// Returns the first cache that has not received the write, if any.
    fn behind(&self, write: &Write) -> Option<&dyn CacheState> {
        let mut caches = self.0.get(&write.collection).into_iter().flatten();
        caches.find(|it| !write.is_in(&***it)).map(AsRef::as_ref)
    }
}

/// The writes of each key that the caches have not received yet. There is at most one entry for each key; it contains
/// writes of the last reconcile. An entry is removed within ten seconds after the caches have received its writes.
pub(crate) struct Gate<R> {
    /// Set once a cache has been added. Before that, writes are not recorded.
    has_caches: AtomicBool,
    /// Guards the caches and the writes.
    state: Mutex<State<R>>,
    /// Notified when the first entry is added.
    filled: Notify,
}

struct State<R> {
    caches: Caches,
    /// Missing writes by key. The map is only iterated to remove entries.
    keys: HashMap<R, Unseen, RandomState>,
}

/// Interval at which the entries of keys that are not enqueued again are checked.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

struct Unseen {
    writes: Vec<Write>,
    since: Instant,
    pause: Duration,
}

impl Unseen {
    /// Returns the age at which the periodic check removes the entry. Entries of keys that are held back are kept
    /// longer, so that the next check of such a key still finds the entry and fails, even if the check is late because
    /// all workers are busy.
    fn patience(&self) -> Duration {
        if self.pause > PAUSES.0 { PATIENCE * 2 } else { PATIENCE }
    }
}

/// Result of checking a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    Open,
    /// The outcome of a write is unknown: call [`Gate::ask`], then check the key again.
    Ask,
    /// The key is held back, and must be checked again after this delay.
    Held(Duration),
    /// The key was held back for too long; contains the reason. The next check returns `Open`.
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

    /// Periodically removes entries whose keys are not enqueued again. Never returns. Does not use a timer while there
    /// are no entries.
    pub(super) async fn sweep(&self) {
        loop {
            if self.lock().keys.is_empty() {
                self.filled.notified().await;
            }
            sleep(SWEEP_EVERY).await;
            self.drop_seen();
        }
    }

    /// Removes entries whose writes all caches have received, and entries that are too old.
    fn drop_seen(&self) {
        let mut state = self.lock();
        let State { caches, keys } = &mut *state;
        keys.retain(|_, unseen| {
            unseen.writes.retain(|write| !caches.have_seen(write));
            !unseen.writes.is_empty() && unseen.since.elapsed() <= unseen.patience()
        });
        keys.shrink_to_fit();
    }

    /// Adds a cache to wait for. Keys also wait until it has received earlier writes that other caches have not
    /// received yet.
    pub(crate) fn join(&self, collection: Collection, cache: Arc<dyn CacheState>) {
        let mut state = self.lock();
        state.caches.drop_ended();
        state.caches.add(collection, cache);
        self.has_caches.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if there are caches to wait for.
    pub(super) fn has_caches(&self) -> bool {
        self.has_caches.load(Ordering::Relaxed)
    }

    /// Checks whether a key may be reconciled. `has_asked` is `true` if [`ask`](Self::ask) was called just before.
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
            let why = format!("{why}; the write is {:.0?} old", unseen.since.elapsed());
            // Let the next check pass: a cache that has stopped must not block the key forever.
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

    /// Reads the current state from the server for a key's writes with unknown outcomes. If the server does not
    /// respond, the next check of the key retries this.
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

    /// Records the writes that a reconcile of a key has made.
    pub(super) fn remember(&self, key: &R, mut writes: Vec<Write>) {
        if writes.is_empty() {
            return;
        }
        let mut state = self.lock();
        let State { caches, keys } = &mut *state;
        // Skip writes that all caches of the resource have received; this includes resources without a cache.
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
    /// Describes the write that a cache has not received yet.
    fn missing_in(&self, cache: Option<&dyn CacheState>) -> String {
        let (collection, key) = (&self.collection, &self.key);
        let at = cache.map(|it| it.resource_version(key)).unwrap_or_default();
        let has_not_seen = format!("the cache of {collection} is at version {at} and has not received");
        match &self.what {
            Written::Version(version) | Written::Terminating { version, .. } => {
                format!("{has_not_seen} version {version} of {key}, which this process wrote")
            }
            Written::Gone { .. } | Written::Absent { .. } => format!("{has_not_seen} the removal of {key}"),
            Written::Deleted { .. } => format!("{has_not_seen} the deletion of {key}"),
            Written::Unknown(_) => {
                format!(
                    "the response to a write of this process to {collection} {key} was lost, and the server has not \
                     returned the object's current version since"
                )
            }
        }
    }
}

impl<R> fmt::Debug for Gate<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_state::fake::FakeCache;
    use crate::interleave::interleave;
    use crate::{ObjectKey, ResourceVersion};

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

    #[test]
    fn key_does_not_pass_before_all_caches_have_received_its_writes() {
        for seed in 0..400 {
            let (gate, caches) = (
                Gate::new(Caches::default()),
                [(); 2].map(|()| Arc::new(FakeCache::default())),
            );
            for cache in &caches {
                gate.join(pods(), cache.clone());
            }
            let received = || caches.iter().map(|it| it.version.load(Ordering::Relaxed)).min();
            let work = |key: u32, versions: [u64; 3]| {
                for version in versions {
                    gate.remember(&key, write(version));
                    for _ in 0..3 {
                        let passage = gate.look(&key, false);
                        assert!(
                            passage != Passage::Open || received() >= Some(version),
                            "the key {key} passes before version {version} is received, seed {seed}"
                        );
                    }
                }
            };
            let receive = |cache: &FakeCache| {
                for version in 1..=6 {
                    cache.version.store(version, Ordering::Relaxed);
                    gate.drop_seen();
                }
            };
            interleave(
                seed,
                vec![
                    Box::new(|| work(1, [1, 4, 5])),
                    Box::new(|| work(2, [2, 3, 6])),
                    Box::new(|| receive(&caches[0])),
                    Box::new(|| receive(&caches[1])),
                ],
            );
            for key in [1, 2] {
                assert_eq!(
                    gate.look(&key, false),
                    Passage::Open,
                    "the key {key} is held back, seed {seed}"
                );
            }
            assert!(gate.lock().keys.is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn key_held_back_too_long_fails_even_if_old_writes_are_swept() {
        let (cache, gate) = (Arc::new(FakeCache::default()), Arc::new(Gate::new(Caches::default())));
        gate.join(pods(), cache);
        let sweeping = Arc::clone(&gate);
        tokio::spawn(async move { sweeping.sweep().await });
        gate.remember(&0, write(9));
        // Begin to hold the key back just before a sweep, so that its last check is just after a sweep.
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
    async fn remembered_writes_of_keys_that_are_never_added_again_are_removed() {
        let (cache, gate) = (Arc::new(FakeCache::default()), Arc::new(Gate::new(Caches::default())));
        gate.join(pods(), cache.clone());
        let sweeping = Arc::clone(&gate);
        tokio::spawn(async move { sweeping.sweep().await });
        (1..=10_000_u64).for_each(|it| gate.remember(&it, write(it)));
        tokio::time::sleep(SWEEP_EVERY * 2).await;
        assert_eq!(
            gate.lock().keys.len(),
            10_000,
            "keys are kept while the cache lacks their writes"
        );
        // The cache catches up, but no key is enqueued or checked anymore.
        cache.version.store(9_997, Ordering::Relaxed);
        tokio::time::sleep(SWEEP_EVERY * 2).await;
        assert_eq!(gate.lock().keys.len(), 3);
        assert!(gate.lock().keys.capacity() < 64);
        assert_eq!(gate.look(&10_000, false), Passage::Held(PAUSES.0));
        // A cache that never advances must not hold a key forever.
        tokio::time::sleep(PATIENCE * 2 + SWEEP_EVERY * 2).await;
        assert_eq!(gate.lock().keys.len(), 0);
    }
}
