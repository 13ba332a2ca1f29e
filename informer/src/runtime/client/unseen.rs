//! `Unseen`: writes of a client that caches have not received yet.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::cache_state::CacheState;
use crate::reconcile::{Asked, Write};
use crate::sync::Mutex;
use crate::{ObjectKey, ResourceVersion};

/// Maximum number of objects of a resource for which writes are tracked. If there are more, the object whose last write
/// is oldest is dropped, and reads may return its state from before the write.
const REMEMBERED: usize = 4096;

/// The tracked writes of a client, by group and plural of the resource.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    /// Guards the writes.
    writes: Mutex<BTreeMap<String, Known>>,
}

/// Tracked writes to the objects of a resource.
#[derive(Debug, Default)]
struct Known {
    objects: BTreeMap<ObjectKey, Written>,
    /// Objects in the order of their last tracked write.
    order: BTreeMap<u64, ObjectKey>,
    last: u64,
}

#[derive(Debug)]
struct Written {
    number: u64,
    writes: Vec<Write>,
}

impl Known {
    fn add(&mut self, write: Write) {
        self.last += 1;
        let number = self.last;
        if let Some(written) = self.objects.get_mut(&write.key) {
            self.order.remove(&written.number);
            written.number = number;
        } else if self.objects.len() >= REMEMBERED
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.objects.remove(&oldest);
        }
        self.order.insert(number, write.key.clone());
        let written = self.objects.entry(write.key.clone());
        let written = written.or_insert_with(|| Written {
            number,
            writes: Vec::new(),
        });
        Write::merge(&mut written.writes, write);
    }

    /// Returns the first write to an object that the cache has not received. Drops the writes that all caches of the
    /// resource have received.
    fn first_of(&mut self, key: &ObjectKey, cache: &impl CacheState, caches: &[Arc<dyn CacheState>]) -> Option<Write> {
        let written = self.objects.get_mut(key)?;
        let mut first = None;
        written.writes.retain(|write| {
            let is_missing = !write.is_in(cache);
            if is_missing {
                first.get_or_insert_with(|| write.clone());
            }
            is_missing || caches.iter().any(|it| !write.is_in(&**it))
        });
        if written.writes.is_empty() {
            self.order.remove(&written.number);
            self.objects.remove(key);
        }
        first
    }
}

/// Returns the keys under which writes to an object may be recorded. A write with an unknown outcome is recorded
/// without a name if the server generated the name, or if the request deleted several objects.
fn keys_of(key: &ObjectKey) -> [ObjectKey; 2] {
    let unnamed = match key.namespace() {
        Some(namespace) => ObjectKey::new(namespace, ""),
        None => ObjectKey::cluster(""),
    };
    [unnamed, key.clone()]
}

impl Unseen {
    /// Adds writes to the record. For several writes to an object, the result does not depend on the order of the
    /// responses.
    pub(super) fn remember(&self, writes: &[Write]) {
        let mut all = self.lock();
        for write in writes {
            let known = all.entry(write.collection.resource().to_owned()).or_default();
            known.add(write.clone());
        }
    }

    /// Reads the unknown outcomes of writes from the server, for writes to an object, or to all objects of a resource
    /// if `key` is `None`. If the server does not respond, the outcomes remain unknown.
    pub(super) async fn learn(&self, resource: &str, key: Option<&ObjectKey>) {
        let unknown: Vec<Write> = {
            let all = self.lock();
            let Some(known) = all.get(resource) else {
                return;
            };
            let written: Vec<_> = match key {
                Some(key) => keys_of(key).iter().filter_map(|it| known.objects.get(it)).collect(),
                None => known.objects.values().collect(),
            };
            let writes = written.into_iter().flat_map(|it| &it.writes);
            writes.filter(|it| it.is_unknown()).cloned().collect()
        };
        let settle = |write: &Write, learnt| {
            let mut all = self.lock();
            if let Some(written) = all.get_mut(resource).and_then(|it| it.objects.get_mut(&write.key)) {
                Write::settle(&mut written.writes, write, learnt);
            }
        };
        Write::learn_all(unknown, settle).await;
    }

    /// Marks the outcomes of lost writes as unknown. `current` is the version of the server, which was requested at
    /// `requested`. A server that was restored from a backup never sends the versions of these writes to caches.
    pub(super) fn question_lost(
        &self,
        resource: &str,
        current: &ResourceVersion,
        requested: Instant,
        ask: impl Fn(&ObjectKey) -> Asked,
    ) {
        let mut all = self.lock();
        let Some(known) = all.get_mut(resource) else {
            return;
        };
        let writes = known.objects.values_mut().flat_map(|it| &mut it.writes);
        for write in writes.filter(|it| it.at <= requested && it.is_lost(current)) {
            let asked = ask(&write.key);
            write.question(asked);
        }
    }

    /// Returns the first write to this object, or to any object if `key` is `None`, that the cache has not received.
    /// Drops the writes that all `caches` of the resource have received: a write that only some of them have received
    /// is still missing in the others. Caches that are started later are not considered, although their first list may
    /// be older if it is served by a replica that lags.
    pub(super) fn first(
        &self,
        resource: &str,
        key: Option<&ObjectKey>,
        cache: &impl CacheState,
        caches: impl FnOnce() -> Vec<Arc<dyn CacheState>>,
    ) -> Option<Write> {
        let mut all = self.lock();
        let known = all.get_mut(resource)?;
        let caches = caches();
        let first = match key {
            Some(key) => keys_of(key).iter().find_map(|key| known.first_of(key, cache, &caches)),
            None => {
                let (mut next, mut first) = (0, None);
                while let (None, Some((number, key))) = (&first, known.order.range(next..).next()) {
                    let key = key.clone();
                    next = number + 1;
                    first = known.first_of(&key, cache, &caches);
                }
                first
            }
        };
        if known.objects.is_empty() {
            all.remove(resource);
        }
        first
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::cache_state::fake::FakeCache;
    use crate::interleave::interleave;
    use crate::reconcile::{Collection, Written as Outcome};

    fn key(number: u64) -> ObjectKey {
        ObjectKey::new("default", &format!("pod-{number}"))
    }

    #[test]
    fn reads_never_miss_a_remembered_write() {
        let pods = Collection::new(None, "", "pods");
        let write = |version: u64| Write {
            collection: pods.clone(),
            key: key(1),
            labels: None,
            at: Instant::now(),
            what: Outcome::Version(ResourceVersion::from(version.to_string().as_str())),
        };
        for seed in 0..500 {
            let (unseen, cache) = (Unseen::default(), Arc::new(FakeCache::default()));
            let caches = || vec![Arc::clone(&cache) as Arc<dyn CacheState>];
            let receive = |version: u64| cache.version.store(version, Ordering::Relaxed);
            let holds_back = |key: Option<&ObjectKey>| unseen.first(pods.resource(), key, &*cache, caches).is_some();
            // Each task waits for its own write. The order of the responses differs from the order in which the server
            // executed the writes.
            let writer = |versions: [u64; 3]| {
                for version in versions {
                    unseen.remember(&[write(version)]);
                    let has_received = || cache.version.load(Ordering::Relaxed) >= version;
                    assert!(
                        holds_back(Some(&key(1))) || has_received(),
                        "the read at {version} misses a write with seed {seed}"
                    );
                }
            };
            let reader = || {
                for version in 11..=15 {
                    receive(version);
                    holds_back(None);
                }
            };
            let (one, other) = ([11, 14, 13], [16, 12, 15]);
            interleave(
                seed,
                vec![Box::new(|| writer(one)), Box::new(|| writer(other)), Box::new(reader)],
            );
            assert!(holds_back(None), "lists are not held back with seed {seed}");
            receive(16);
            assert!(!holds_back(None), "lists are still held back with seed {seed}");
            assert!(unseen.lock().is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn read_of_an_object_only_checks_writes_to_that_object() {
        let (unseen, pods) = (Unseen::default(), Collection::new(None, "", "pods"));
        let write = |number: u64| Write {
            collection: pods.clone(),
            key: key(number),
            labels: None,
            at: Instant::now(),
            what: Outcome::Version(ResourceVersion::from((10 + number).to_string().as_str())),
        };
        (0..5_000).for_each(|it| unseen.remember(&[write(it)]));
        let cache = |version| Arc::new(FakeCache::at(version));
        let behind = cache(5);
        let first = |key: Option<&ObjectKey>, cache: &Arc<FakeCache>| {
            let caches = || vec![Arc::clone(cache) as Arc<dyn CacheState>];
            let first = unseen.first(pods.resource(), key, &**cache, caches);
            first.map(|it| it.key)
        };
        assert_eq!(first(Some(&key(4_999)), &behind), Some(key(4_999)));
        assert_eq!(first(Some(&key(1)), &behind), None, "the oldest writes are forgotten");
        assert_eq!(first(None, &behind), Some(key(5_000 - 4_096)));
        assert_eq!(behind.comparisons.load(Ordering::Relaxed), 2);
        // A list of all objects drops the writes that the cache has received.
        let abreast = cache(10 + 4_000);
        for _ in 0..3 {
            assert_eq!(first(None, &abreast), Some(key(4_001)));
        }
        // A write that the cache has received is also compared with all caches of the resource.
        assert_eq!(abreast.comparisons.load(Ordering::Relaxed), 2 * (4_001 - 904) + 3);
        assert_eq!(first(None, &cache(10_000)), None);
        assert!(unseen.lock().is_empty());
    }
}
