//! `WorkQueue`: the keys that a controller has to sync, without duplicates, in order of arrival.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// Delay of the first retry of a key, as in client-go. Each further failure doubles the delay.
const RETRY_FIRST: Duration = Duration::from_millis(5);

/// Maximum delay of a retry, as in client-go.
const RETRY_MOST: Duration = Duration::from_secs(1000);

/// Queue of keys. A waiting key that is added again keeps its position; a key that is added while it is being processed
/// is processed again. The queue has at most one ready and one delayed entry for each key, so its size is limited by
/// the number of objects.
///
/// Delays use tokio's clock. No timer runs while the queue is empty.
#[derive(Debug)]
pub(crate) struct WorkQueue<K> {
    ready: VecDeque<K>,
    /// The keys in `ready`.
    queued: BTreeSet<K>,
    /// The delayed keys, by due time and then by order of insertion.
    delayed: BTreeMap<(Instant, u64), K>,
    /// Due time of each key of `delayed`.
    due: BTreeMap<K, (Instant, u64)>,
    /// Number of failures of each key since it last succeeded.
    failures: BTreeMap<K, u32>,
    asked: u64,
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            queued: BTreeSet::new(),
            delayed: BTreeMap::new(),
            due: BTreeMap::new(),
            failures: BTreeMap::new(),
            asked: 0,
        }
    }
}

impl<K: Clone + Ord> WorkQueue<K> {
    /// Adds a ready key, unless the key is already ready.
    pub(crate) fn add(&mut self, key: K) {
        if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    /// Adds a key after a delay. If the key is already delayed, the earlier time applies.
    pub(crate) fn add_after(&mut self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        self.asked += 1;
        let at = (Instant::now() + delay, self.asked);
        match self.due.get(&key) {
            Some(due) if *due <= at => return,
            Some(due) => drop(self.delayed.remove(due)),
            None => {}
        }
        self.due.insert(key.clone(), at);
        self.delayed.insert(at, key);
    }

    /// Adds a failed key after 5 ms, 10 ms, 20 ms and so on, at most 1000 s.
    pub(crate) fn retry(&mut self, key: K) {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = RETRY_FIRST
            .saturating_mul(2_u32.saturating_pow(*failures))
            .min(RETRY_MOST);
        *failures = failures.saturating_add(1);
        self.add_after(key, delay);
    }

    /// Resets the failures of a key.
    pub(crate) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// Takes the next ready key.
    pub(super) fn pop(&mut self) -> Option<K> {
        let key = self.ready.pop_front()?;
        self.queued.remove(&key);
        Some(key)
    }

    /// Moves the delayed keys that are due to the ready keys. Returns `true` if a key is ready.
    pub(super) fn is_ready(&mut self) -> bool {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > Instant::now() {
                break;
            }
            let key = entry.remove();
            self.due.remove(&key);
            self.add(key);
        }
        !self.ready.is_empty()
    }

    /// Returns the due time of the next delayed key.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((at, _), _)| *at)
    }

    /// Removes all keys and the numbers of their failures.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
