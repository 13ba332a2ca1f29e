//! `ExpiringCache`: a map with values that expire.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::ObjectKey;

/// Map with values that expire some time after their insertion (client-go's TTL store). Clones share the map.
///
/// Expired values are removed when they are read, without a timer. Times are measured with tokio's clock.
///
/// ```
/// use std::time::Duration;
/// use informer::ObjectKey;
/// use informer::cache::ExpiringCache;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let cache = ExpiringCache::new(Duration::from_secs(60));
/// cache.insert(ObjectKey::cluster("a"), 1);
/// tokio::time::advance(Duration::from_secs(60)).await;
/// assert_eq!(cache.get(&ObjectKey::cluster("a")), Some(1));
/// tokio::time::advance(Duration::from_millis(1)).await;
/// assert_eq!(cache.get(&ObjectKey::cluster("a")), None);
/// # }
/// ```
#[derive(Clone)]
pub struct ExpiringCache<V> {
    ttl: Duration,
    /// Guards the values, each with its time of insertion.
    values: Arc<Mutex<BTreeMap<ObjectKey, (Instant, V)>>>,
}

impl<V: Clone> ExpiringCache<V> {
    /// Creates a cache with values that expire after `ttl`. With a `ttl` of zero, values never expire.
    pub fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            values: Arc::default(),
        }
    }

    /// Inserts a value, which expires after the cache's `ttl`.
    pub fn insert(&self, key: ObjectKey, value: V) {
        self.lock().insert(key, (Instant::now(), value));
    }

    /// Returns the value of a key, unless it has expired.
    pub fn get(&self, key: &ObjectKey) -> Option<V> {
        let mut values = self.lock();
        if self.is_over(values.get(key)?.0) {
            values.remove(key);
            return None;
        }
        values.get(key).map(|(_, value)| value.clone())
    }

    /// Removes and returns a value, unless it has expired.
    pub fn remove(&self, key: &ObjectKey) -> Option<V> {
        let (since, value) = self.lock().remove(key)?;
        (!self.is_over(since)).then_some(value)
    }

    /// Returns all values that have not expired, ordered by key.
    pub fn list(&self) -> Vec<(ObjectKey, V)> {
        let mut values = self.lock();
        values.retain(|_, (since, _)| !self.is_over(*since));
        values
            .iter()
            .map(|(key, (_, value))| (key.clone(), value.clone()))
            .collect()
    }

    fn is_over(&self, since: Instant) -> bool {
        !self.ttl.is_zero() && since.elapsed() > self.ttl
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, (Instant, V)>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V> fmt::Debug for ExpiringCache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringCache")
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reinserted_value_gets_a_new_expiry_and_zero_never_expires() {
        let (short, endless) = (
            ExpiringCache::new(Duration::from_secs(10)),
            ExpiringCache::new(Duration::ZERO),
        );
        let (a, b) = (ObjectKey::cluster("a"), ObjectKey::cluster("b"));
        for key in [&a, &b] {
            short.insert(key.clone(), 1);
            endless.insert(key.clone(), 1);
        }
        tokio::time::advance(Duration::from_secs(9)).await;
        short.insert(b.clone(), 2);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(short.remove(&a), None);
        assert_eq!(short.list(), [(b, 2)]);
        assert_eq!(endless.list().len(), 2);
    }
}
