//! `Lister`: reads from a cache.

use std::fmt;

use futures::future::{Either, select};
use kube::core::{Expression, Selector};
use tokio::sync::watch;
use tokio::time::Instant;

use super::index::Index;
use super::indexer::Indexer;
use super::phase::{self, Phase};
use super::sorted::Sorted;
use crate::object::{Cacheable, CachedObject, type_name};
use crate::{Error, ObjectKey, ResourceVersion};

/// Reads from a cache (client-go's `Lister`, and the read methods of its `Indexer`). Clones read the same cache.
///
/// The result of a read does not change later, and writers do not wait while it is used. Objects are ordered by key.
pub struct Lister<K> {
    indexer: Indexer<K>,
    /// Phase of the informer that fills the cache; `None` if the caller fills it.
    phase: Option<watch::Receiver<Phase>>,
}

impl<K: Cacheable> Lister<K> {
    pub(crate) fn new(indexer: Indexer<K>) -> Self {
        Self { indexer, phase: None }
    }

    pub(crate) fn of_informer(indexer: Indexer<K>, phase: watch::Receiver<Phase>) -> Self {
        Self {
            indexer,
            phase: Some(phase),
        }
    }

    /// Returns `true` if the cache contains the first list. A cache that the caller fills has always synced.
    pub fn has_synced(&self) -> bool {
        self.phase.as_ref().is_none_or(|it| it.borrow().has_synced())
    }

    /// Waits until the cache contains the first list.
    ///
    /// # Errors
    ///
    /// Fails if the informer stops before it has synced.
    pub async fn synced(&self) -> Result<(), Error> {
        match &self.phase {
            Some(phase) => phase::synced(phase.clone(), &type_name::<K>()).await,
            None => Ok(()),
        }
    }

    /// Returns the time at which the informer last detected that the server was restored from a backup. The informer
    /// must have a single source.
    pub(crate) fn restored(&self) -> Option<Instant> {
        self.indexer.restored(0)
    }

    /// Returns the object with this key.
    pub fn get(&self, key: &ObjectKey) -> Option<CachedObject<K>> {
        self.indexer.read().objects.get(key).cloned()
    }

    /// Returns a snapshot of all objects. Only clones a reference.
    pub fn snapshot(&self) -> CacheSnapshot<K> {
        CacheSnapshot(self.indexer.read().objects.clone())
    }

    /// Returns all objects, ordered by key.
    pub fn list(&self) -> Vec<CachedObject<K>> {
        self.snapshot().iter().cloned().collect()
    }

    /// Returns the objects that match a label selector.
    pub fn select(&self, selector: &Selector) -> Vec<CachedObject<K>> {
        matching(self.snapshot().iter(), selector)
    }

    /// Returns a lister for one namespace.
    pub fn namespace(&self, namespace: &str) -> NamespaceLister<K> {
        NamespaceLister {
            lister: self.clone(),
            namespace: namespace.to_owned(),
        }
    }

    /// Returns the objects with this value in an index.
    ///
    /// # Errors
    ///
    /// Fails if the index does not exist.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<CachedObject<K>>, Error> {
        let bucket = self.bucket(index, value)?;
        Ok(bucket.iter().cloned().collect())
    }

    /// Returns the keys of the objects with this value in an index.
    ///
    /// # Errors
    ///
    /// Fails if the index does not exist.
    pub fn index_keys(&self, index: &str, value: &str) -> Result<Vec<ObjectKey>, Error> {
        let bucket = self.bucket(index, value)?;
        Ok(bucket.iter().map(|it| it.key().clone()).collect())
    }

    /// Returns all values of an index, sorted.
    ///
    /// # Errors
    ///
    /// Fails if the index does not exist.
    pub fn index_values(&self, index: &str) -> Result<Vec<String>, Error> {
        self.with_index(index, |index| index.buckets.keys().cloned().collect())
    }

    /// Returns the objects that share a value of the index with `object`, without duplicates (client-go's `Index`).
    ///
    /// # Errors
    ///
    /// Fails if the index does not exist.
    pub fn related(&self, index: &str, object: &CachedObject<K>) -> Result<Vec<CachedObject<K>>, Error> {
        // The function is user code that may read the cache, so it must not be called while the lock is held.
        let function = self.with_index(index, |index| index.function.clone())?;
        let values = function.values(object);
        let buckets: Vec<Sorted<K>> = self.with_index(index, |index| {
            let buckets = values.iter().filter_map(|value| index.buckets.get(value).cloned());
            buckets.collect()
        })?;
        let all = buckets.iter().flat_map(Sorted::iter).cloned().collect();
        Ok(super::indexer::in_order(all))
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.indexer.read().objects.len()
    }

    /// Returns `true` if the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the version up to which the cache contains all changes; empty before the first list. With several
    /// namespaces, returns the oldest of their versions.
    pub fn resource_version(&self) -> ResourceVersion {
        self.indexer.version()
    }

    /// Waits until the cache is at `version` or later, for example until it contains a write of the caller. If the
    /// versions cannot be compared, waits until the cache's version changes. Never returns if the informer stops before
    /// that.
    pub async fn reached(&self, version: &ResourceVersion) {
        let now = self.resource_version();
        let is_reached = |at: &ResourceVersion| match at.partial_cmp(version) {
            Some(order) => order.is_ge(),
            None => *at != now,
        };
        self.indexer.wait_for_version(is_reached).await;
    }

    /// Waits until an object satisfies a condition, and returns it (kube-runtime's `wait::await_condition`).
    ///
    /// The condition is called with the object, or with `None` if it does not exist: first when the cache has synced,
    /// then whenever the version of the cache changes. Waits without a time limit; use `tokio::time::timeout` to set
    /// one.
    ///
    /// ```
    /// use informer::cache::Lister;
    /// use informer::{CachedObject, ObjectKey};
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// # async fn wait(pods: Lister<Pod>) -> Result<(), informer::Error> {
    /// let is_gone = |pod: Option<&CachedObject<Pod>>| pod.is_none();
    /// pods.await_condition(&ObjectKey::new("shop", "web-0"), is_gone).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the informer stops before the condition is satisfied.
    pub async fn await_condition(
        &self,
        key: &ObjectKey,
        mut condition: impl FnMut(Option<&CachedObject<K>>) -> bool,
    ) -> Result<Option<CachedObject<K>>, Error> {
        self.synced().await?;
        let mut found = None;
        let fulfilled = self.indexer.wait_for_version(|_| {
            found = self.get(key);
            condition(found.as_ref())
        });
        let is_fulfilled = match self.phase.clone() {
            None => {
                fulfilled.await;
                true
            }
            Some(mut phase) => {
                let stopped = std::pin::pin!(phase.wait_for(|it| it.is_stopped()));
                matches!(select(std::pin::pin!(fulfilled), stopped).await, Either::Left(_))
            }
        };
        if is_fulfilled {
            return Ok(found);
        }
        let kind = type_name::<K>();
        Err(Error::refused(format!(
            "the informer of {kind} stopped before {key} met the awaited condition"
        )))
    }

    /// Returns `true` if an index with this name exists.
    pub fn has_index(&self, index: &str) -> bool {
        self.indexer.read().indexes.contains_key(index)
    }

    /// Waits until `is_so` returns `true`. Calls it initially and whenever the version of the cache changes.
    pub(crate) async fn until(&self, is_so: impl Fn() -> bool) {
        self.indexer.wait_for_version(|_| is_so()).await;
    }

    fn bucket(&self, index: &str, value: &str) -> Result<Sorted<K>, Error> {
        self.with_index(index, |index| index.buckets.get(value).cloned().unwrap_or_default())
    }

    fn with_index<R>(&self, name: &str, f: impl FnOnce(&Index<K>) -> R) -> Result<R, Error> {
        match self.indexer.read().indexes.get(name) {
            Some(index) => Ok(f(index)),
            None => Err(Error::refused(format!("there is no index {name:?}"))),
        }
    }
}

/// Returns the objects that match a label selector.
fn matching<'a, K: Cacheable>(
    objects: impl Iterator<Item = &'a CachedObject<K>>,
    selector: &Selector,
) -> Vec<CachedObject<K>> {
    let expressions: Vec<Expression> = selector.clone().into_iter().collect();
    objects
        .filter(|it| expressions.is_empty() || it.matches_all(&expressions))
        .cloned()
        .collect()
}

/// Reads the objects of one namespace from a cache.
pub struct NamespaceLister<K> {
    lister: Lister<K>,
    namespace: String,
}

impl<K: Cacheable> NamespaceLister<K> {
    /// Returns the object with this name.
    pub fn get(&self, name: &str) -> Option<CachedObject<K>> {
        self.lister.get(&ObjectKey::new(&self.namespace, name))
    }

    /// Returns all objects of the namespace.
    pub fn list(&self) -> Vec<CachedObject<K>> {
        self.lister.snapshot().0.namespace(&self.namespace).cloned().collect()
    }

    /// Returns the objects that match a label selector.
    pub fn select(&self, selector: &Selector) -> Vec<CachedObject<K>> {
        matching(self.lister.snapshot().0.namespace(&self.namespace), selector)
    }
}

/// Immutable snapshot of a cache. Clones are cheap.
pub struct CacheSnapshot<K>(pub(crate) Sorted<K>);

impl<K: Cacheable> CacheSnapshot<K> {
    /// Returns the object with this key.
    pub fn get(&self, key: &ObjectKey) -> Option<&CachedObject<K>> {
        self.0.get(key)
    }

    /// Returns all objects, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = &CachedObject<K>> {
        self.0.iter()
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if the snapshot is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self {
            indexer: self.indexer.clone(),
            phase: self.phase.clone(),
        }
    }
}

impl<K> Clone for NamespaceLister<K> {
    fn clone(&self) -> Self {
        Self {
            lister: self.lister.clone(),
            namespace: self.namespace.clone(),
        }
    }
}

impl<K> Clone for CacheSnapshot<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Lister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lister({:?})", self.indexer)
    }
}

impl<K> fmt::Debug for NamespaceLister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamespaceLister({:?})", self.namespace)
    }
}

impl<K> fmt::Debug for CacheSnapshot<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter()).finish()
    }
}
