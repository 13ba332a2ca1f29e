//! `Lister`: reads a cache.

use std::fmt;

use kube::core::{Expression, Selector};
use tokio::sync::watch;

use super::index::Index;
use super::indexer::Indexer;
use super::phase::{self, Phase};
use super::sorted::Sorted;
use crate::object::{Cacheable, Object, type_name};
use crate::{Error, ObjectKey, ResourceVersion};

/// Reads a cache (client-go's `Lister` and the reading half of its `Indexer`). Copies read the same one.
///
/// A read takes a reference to the present state and looks at that: it waits for no other reader and keeps no writer
/// waiting. Objects come in the order of their keys; a result does not change with the cache.
pub struct Lister<K> {
    indexer: Indexer<K>,
    /// Phase of the informer that fills the cache, if one does.
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

    /// Returns `true` if the first list is in the cache. A cache that a program fills itself has always synced.
    pub fn has_synced(&self) -> bool {
        self.phase.as_ref().is_none_or(|it| it.borrow().has_synced())
    }

    /// Waits until the first list is in the cache.
    ///
    /// # Errors
    ///
    /// If the informer stops before.
    pub async fn synced(&self) -> Result<(), Error> {
        match &self.phase {
            Some(phase) => phase::synced(phase.clone(), &type_name::<K>()).await,
            None => Ok(()),
        }
    }

    /// The object of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<Object<K>> {
        self.indexer.read().objects.get(key).cloned()
    }

    /// All objects as they are now, at the cost of one reference.
    pub fn snapshot(&self) -> Snapshot<K> {
        Snapshot(self.indexer.read().objects.clone())
    }

    /// All objects.
    pub fn list(&self) -> Vec<Object<K>> {
        self.snapshot().iter().cloned().collect()
    }

    /// Those with these labels.
    pub fn select(&self, selector: &Selector) -> Vec<Object<K>> {
        matching(self.snapshot().iter(), selector)
    }

    /// Those of one namespace.
    pub fn namespace(&self, namespace: &str) -> NamespaceLister<K> {
        NamespaceLister {
            lister: self.clone(),
            namespace: namespace.to_owned(),
        }
    }

    /// Those that an index has under a value.
    ///
    /// # Errors
    ///
    /// If the index does not exist.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Object<K>>, Error> {
        let bucket = self.bucket(index, value)?;
        Ok(bucket.iter().cloned().collect())
    }

    /// Their keys.
    ///
    /// # Errors
    ///
    /// If the index does not exist.
    pub fn index_keys(&self, index: &str, value: &str) -> Result<Vec<ObjectKey>, Error> {
        let bucket = self.bucket(index, value)?;
        Ok(bucket.iter().map(|it| it.key().clone()).collect())
    }

    /// All values of an index, sorted.
    ///
    /// # Errors
    ///
    /// If the index does not exist.
    pub fn index_values(&self, index: &str) -> Result<Vec<String>, Error> {
        self.with_index(index, |index| index.buckets.keys().cloned().collect())
    }

    /// Those that share a value of the index with `object`, each once (client-go's `Index`).
    ///
    /// # Errors
    ///
    /// If the index does not exist.
    pub fn related(&self, index: &str, object: &Object<K>) -> Result<Vec<Object<K>>, Error> {
        // The function is a user's, and may read the cache.
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

    /// Returns `true` if there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The version that the cache is at: it has all changes up to it. Empty before the first list. Of a cache of
    /// several namespaces, the one that all of them have reached.
    pub fn resource_version(&self) -> ResourceVersion {
        self.indexer.version()
    }

    /// Waits until the cache is at `version` or later, for reading own writes. A version that cannot be
    /// compared counts as reached when the cache is at another one than now. It waits without end if the cache stops.
    pub async fn reached(&self, version: &ResourceVersion) {
        let now = self.resource_version();
        let is_reached = |at: &ResourceVersion| match at.partial_cmp(version) {
            Some(order) => order.is_ge(),
            None => *at != now,
        };
        self.indexer.wait_for_version(is_reached).await;
    }

    /// Returns `true` if there is an index of this name.
    pub fn has_index(&self, index: &str) -> bool {
        self.indexer.read().indexes.contains_key(index)
    }

    /// Waits until `is_so`, which is asked whenever the cache has moved on.
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

/// Those of the objects that have these labels.
fn matching<'a, K: Cacheable>(objects: impl Iterator<Item = &'a Object<K>>, selector: &Selector) -> Vec<Object<K>> {
    let expressions: Vec<Expression> = selector.clone().into_iter().collect();
    objects
        .filter(|it| expressions.is_empty() || it.matches_all(&expressions))
        .cloned()
        .collect()
}

/// Reads the objects of one namespace.
pub struct NamespaceLister<K> {
    lister: Lister<K>,
    namespace: String,
}

impl<K: Cacheable> NamespaceLister<K> {
    /// The object of this name.
    pub fn get(&self, name: &str) -> Option<Object<K>> {
        self.lister.get(&ObjectKey::new(&self.namespace, name))
    }

    /// All of them.
    pub fn list(&self) -> Vec<Object<K>> {
        self.lister.snapshot().0.namespace(&self.namespace).cloned().collect()
    }

    /// Those with these labels.
    pub fn select(&self, selector: &Selector) -> Vec<Object<K>> {
        matching(self.lister.snapshot().0.namespace(&self.namespace), selector)
    }
}

/// The objects of a cache at one moment. Copies share everything.
pub struct Snapshot<K>(pub(crate) Sorted<K>);

impl<K: Cacheable> Snapshot<K> {
    /// The object of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<&Object<K>> {
        self.0.get(key)
    }

    /// All objects, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &Object<K>> {
        self.0.iter()
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are no objects.
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

impl<K> Clone for Snapshot<K> {
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

impl<K> fmt::Debug for Snapshot<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter()).finish()
    }
}
