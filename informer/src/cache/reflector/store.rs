//! `ReflectorStore`: the store that a reflector fills.

use crate::object::{Cacheable, CachedObject};
use crate::{ObjectKey, ResourceVersion};

/// The store that a [`Reflector`](super::Reflector) fills: an [`Indexer`](crate::cache::Indexer), or the queue of an
/// informer.
pub trait ReflectorStore<K: Cacheable>: Send + Sync + 'static {
    /// Adds the object of an ADDED event.
    fn add(&self, object: CachedObject<K>);
    /// Stores the object of a MODIFIED event.
    fn update(&self, object: CachedObject<K>);
    /// Removes the object of a DELETED event, given its last state.
    fn delete(&self, object: CachedObject<K>);
    /// Removes an object after a DELETED event that cannot be decoded. `object` is the state that
    /// [`known`](Self::known) returned.
    fn vanish(&self, object: CachedObject<K>) {
        self.delete(object);
    }
    /// Replaces the contents with a list at `version`.
    fn replace(&self, objects: Vec<CachedObject<K>>, version: ResourceVersion);
    /// Replaces the contents with a list in which some objects could not be decoded. If the store has earlier states of
    /// these objects, it must keep them, so that handlers do not receive deletions. Default: adds the
    /// [known](Self::known) states to the list.
    fn replace_keeping(&self, mut objects: Vec<CachedObject<K>>, unread: Vec<Unread>, version: ResourceVersion) {
        let known = unread.iter().filter_map(|it| it.known(self.known(&it.key).as_ref()));
        objects.extend(known);
        self.replace(objects, version);
    }
    /// Records that the contents are up to date as of `version`.
    fn bookmark(&self, version: &ResourceVersion) {
        let _ = version;
    }
    /// Returns the newest state of an object in the store. If a list contains the same version with the same text, the
    /// reflector reuses this state instead of the received one, so that lists of unchanged objects need no additional
    /// memory.
    fn known(&self, key: &ObjectKey) -> Option<CachedObject<K>> {
        let _ = key;
        None
    }
    /// Waits until the store can accept more events.
    fn room(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// An object in a list that could not be decoded, because a transform failed or the object does not have the expected
/// type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Namespace and name.
    pub(crate) key: ObjectKey,
    /// Uid of the object.
    pub(crate) uid: String,
}

impl Unread {
    /// Returns `stored` if it is an earlier state of this object: if it has the same uid, or if the uid is unknown.
    pub(crate) fn known<K: Cacheable>(&self, stored: Option<&CachedObject<K>>) -> Option<CachedObject<K>> {
        stored.filter(|it| it.may_have_uid(&self.uid)).cloned()
    }
}
