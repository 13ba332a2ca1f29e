//! `ReflectorStore`: what a reflector fills.

use crate::object::{Cacheable, Object};
use crate::{ObjectKey, ResourceVersion};

/// The store that a [`Reflector`](super::Reflector) fills: an [`Indexer`](crate::cache::Indexer), or a custom one.
pub trait ReflectorStore<K: Cacheable>: Send + Sync + 'static {
    /// An ADDED event.
    fn add(&self, object: Object<K>);
    /// A MODIFIED event.
    fn update(&self, object: Object<K>);
    /// A DELETED event, with the last state.
    fn delete(&self, object: Object<K>);
    /// A DELETED event of which the last state cannot be read: `object` is the one that was [known](Self::known).
    fn vanish(&self, object: Object<K>) {
        self.delete(object);
    }
    /// A list: there are these objects and no others, as of `version`.
    fn replace(&self, objects: Vec<Object<K>>, version: ResourceVersion);
    /// Replaces the contents by a list of which some objects could not be read: these exist, too, in the states that
    /// the store has. Handlers must not receive deletions of them. Default: adds the [known](Self::known) states to the
    /// list.
    fn replace_keeping(&self, mut objects: Vec<Object<K>>, unread: Vec<Unread>, version: ResourceVersion) {
        let known = unread.iter().filter_map(|it| it.known(self.known(&it.key).as_ref()));
        objects.extend(known);
        self.replace(objects, version);
    }
    /// Nothing changed up to `version`.
    fn bookmark(&self, version: &ResourceVersion) {
        let _ = version;
    }
    /// The newest state that the store was given of an object. If a list has the same version of it, this one is
    /// passed on and the new one dropped, so that a relist takes no memory for what did not change.
    fn known(&self, key: &ObjectKey) -> Option<Object<K>> {
        let _ = key;
        None
    }
    /// Waits until the store can take more.
    fn room(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// An object of a list that could not be read: a transform failed, or it is not of its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Namespace and name.
    pub key: ObjectKey,
    /// The uid.
    pub uid: String,
}

impl Unread {
    /// The object that a store has, if it is an earlier state of this one.
    pub fn known<K: Cacheable>(&self, stored: Option<&Object<K>>) -> Option<Object<K>> {
        stored.filter(|it| it.may_have_uid(&self.uid)).cloned()
    }
}
