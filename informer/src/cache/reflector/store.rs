//! `ReflectorStore`: the store that a reflector fills.

use crate::object::{Cacheable, CachedObject};
use crate::{ObjectKey, ResourceVersion};

/// The store that a [`Reflector`](super::Reflector) fills: an [`Indexer`](crate::cache::Indexer), or a custom one.
pub trait ReflectorStore<K: Cacheable>: Send + Sync + 'static {
    /// Handles an ADDED event.
    fn add(&self, object: CachedObject<K>);
    /// Handles a MODIFIED event.
    fn update(&self, object: CachedObject<K>);
    /// Handles a DELETED event, with the last state.
    fn delete(&self, object: CachedObject<K>);
    /// Handles a DELETED event with a state that cannot be decoded: `object` is the [known](Self::known) state.
    fn vanish(&self, object: CachedObject<K>) {
        self.delete(object);
    }
    /// Replaces the contents by a list, as of `version`.
    fn replace(&self, objects: Vec<CachedObject<K>>, version: ResourceVersion);
    /// Replaces the contents by a list with some objects that could not be decoded. The store still has earlier states
    /// of them, so handlers must not receive deletions of them. Default: adds the [known](Self::known) states to the
    /// list.
    fn replace_keeping(&self, mut objects: Vec<CachedObject<K>>, unread: Vec<Unread>, version: ResourceVersion) {
        let known = unread.iter().filter_map(|it| it.known(self.known(&it.key).as_ref()));
        objects.extend(known);
        self.replace(objects, version);
    }
    /// Records that nothing changed up to `version`.
    fn bookmark(&self, version: &ResourceVersion) {
        let _ = version;
    }
    /// Returns the newest state of an object in the store. If a list contains the same version, this state is reused
    /// and the new one is dropped, so that a relist takes no memory for unchanged objects.
    fn known(&self, key: &ObjectKey) -> Option<CachedObject<K>> {
        let _ = key;
        None
    }
    /// Waits until the store can accept more.
    fn room(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// An object of a list that could not be decoded: a transform failed, or it does not have the expected type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Returns namespace and name.
    pub key: ObjectKey,
    /// The uid.
    pub uid: String,
}

impl Unread {
    /// Returns the object in a store, if it is an earlier state of this one.
    pub fn known<K: Cacheable>(&self, stored: Option<&CachedObject<K>>) -> Option<CachedObject<K>> {
        stored.filter(|it| it.may_have_uid(&self.uid)).cloned()
    }
}
