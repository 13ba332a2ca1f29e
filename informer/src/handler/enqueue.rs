//! Maps events to the keys of the affected objects.
//!
//! ```
//! use informer::handler::{Enqueued, enqueue};
//! use k8s_openapi::api::apps::v1::ReplicaSet;
//! use k8s_openapi::api::core::v1::Pod;
//!
//! // A change of a Pod enqueues the key of its ReplicaSet.
//! let handler = enqueue::into::<Pod, _>(enqueue::controller::<ReplicaSet>(), |enqueued: Enqueued| {
//!     println!("{}", enqueued.key)
//! });
//! # let _ = handler;
//! ```

use std::any::TypeId;
use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use foldhash::fast::RandomState;
use kube::Resource;
use kube::core::ClusterResourceScope;

use crate::ObjectKey;
use crate::object::{Cacheable, CachedObject};

use super::event_handler::{Event, HandlerError, ResourceEventHandler};

/// Maps an event to the keys that it affects (controller-runtime's `EventHandler`).
///
/// Keys identify objects, unless the controller has a custom key type
/// ([`ControllerBuilder::keyed_by`](crate::runtime::ControllerBuilder::keyed_by)).
pub trait ToKeys<K, R = ObjectKey>: Send + Sync + 'static {
    /// Calls `push` with each key, in a deterministic order. May call `push` several times with the same key.
    fn keys(&self, event: &Event<K>, push: &mut dyn FnMut(R));
}

impl<K, R, M: ToKeys<K, R>> ToKeys<K, R> for std::sync::Arc<M> {
    fn keys(&self, event: &Event<K>, push: &mut dyn FnMut(R)) {
        (**self).keys(event, push);
    }
}

/// A key to be added to a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enqueued<R = ObjectKey> {
    /// The key.
    pub key: R,
    /// Set if the event does not contain a new state, because it is from the initial list or a resync. Priority queues
    /// give such keys a low priority.
    pub is_replay: bool,
}

/// Maps each object to its own key (controller-runtime's `EnqueueRequestForObject`).
#[derive(Clone, Copy, Debug)]
pub struct ForObject;

/// Maps each object to its own key.
pub fn object() -> ForObject {
    ForObject
}

impl<K: Cacheable> ToKeys<K> for ForObject {
    fn keys(&self, event: &Event<K>, push: &mut dyn FnMut(ObjectKey)) {
        push(event.object().key().clone());
    }
}

/// Maps objects to the keys of their owners of one type (controller-runtime's `EnqueueRequestForOwner`).
#[derive(Clone, Debug)]
pub struct ForOwner {
    group: String,
    kind: String,
    is_cluster_scoped: bool,
    is_controller_only: bool,
}

/// Maps objects to the keys of all owners of type `O`. For updates, owners of the old state precede owners of the new
/// state.
pub fn owner<O>() -> ForOwner
where
    O: Resource<DynamicType = ()>,
    O::Scope: 'static,
{
    let is_cluster_scoped = TypeId::of::<O::Scope>() == TypeId::of::<ClusterResourceScope>();
    owner_of_kind(&O::group(&()), &O::kind(&()), is_cluster_scoped)
}

/// Same as [`owner`], for an owner kind without a Rust type.
pub fn owner_of_kind(group: &str, kind: &str, is_cluster_scoped: bool) -> ForOwner {
    ForOwner {
        group: group.to_owned(),
        kind: kind.to_owned(),
        is_cluster_scoped,
        is_controller_only: false,
    }
}

/// Maps objects to the key of the owner that is marked as controller, if this owner has type `O`.
pub fn controller<O>() -> ForOwner
where
    O: Resource<DynamicType = ()>,
    O::Scope: 'static,
{
    owner::<O>().controller_only()
}

impl ForOwner {
    /// Restricts the mapping to the owner with `controller: true`.
    #[must_use]
    pub fn controller_only(mut self) -> Self {
        self.is_controller_only = true;
        self
    }

    fn of_object<K: Cacheable>(&self, object: &CachedObject<K>, push: &mut dyn FnMut(ObjectKey)) {
        object.each_owner(&mut |owner| {
            let group = owner.api_version.rsplit_once('/').map_or("", |(group, _version)| group);
            if group != self.group || owner.kind != self.kind || (self.is_controller_only && !owner.is_controller) {
                return;
            }
            push(match object.key().namespace() {
                Some(namespace) if !self.is_cluster_scoped => ObjectKey::new(namespace, owner.name),
                Some(_) | None => ObjectKey::cluster(owner.name),
            });
        });
    }
}

impl<K: Cacheable> ToKeys<K> for ForOwner {
    fn keys(&self, event: &Event<K>, push: &mut dyn FnMut(ObjectKey)) {
        // If the owner of an object has changed, the old owner is affected as well.
        if let Some(old) = event.old() {
            self.of_object(old, push);
        }
        self.of_object(event.object(), push);
    }
}

/// Maps objects with a function (controller-runtime's `EnqueueRequestsFromMapFunc`).
pub struct Mapped<K, F>(F, PhantomData<fn(K)>);

/// Maps objects with `f`. For updates, calls `f` with the old state, then with the new state.
pub fn mapped<K, F, I>(f: F) -> Mapped<K, F>
where
    F: Fn(&CachedObject<K>) -> I + Send + Sync + 'static,
    I: IntoIterator,
{
    Mapped(f, PhantomData)
}

impl<K, F: Clone> Clone for Mapped<K, F> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<K, F> fmt::Debug for Mapped<K, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mapped")
    }
}

impl<K, F, I, R> ToKeys<K, R> for Mapped<K, F>
where
    K: Cacheable,
    F: Fn(&CachedObject<K>) -> I + Send + Sync + 'static,
    I: IntoIterator<Item = R>,
{
    fn keys(&self, event: &Event<K>, push: &mut dyn FnMut(R)) {
        if let Some(old) = event.old() {
            (self.0)(old).into_iter().for_each(&mut *push);
        }
        (self.0)(event.object()).into_iter().for_each(push);
    }
}

/// A handler that passes the keys of events to a function; see [`into`].
pub struct Enqueue<M, S> {
    to_keys: M,
    sink: S,
}

/// Returns a handler that calls `sink` with the keys of each event, in order and without duplicates.
pub fn into<K, M>(to_keys: M, sink: impl Fn(Enqueued) + Send + Sync + 'static) -> impl ResourceEventHandler<K>
where
    K: Cacheable,
    M: ToKeys<K>,
{
    Enqueue { to_keys, sink }
}

/// Maximum number of keys of an event that are kept in a list and compared one by one. Further keys are kept in a set.
const FEW: usize = 8;

/// Calls `sink` once for each distinct key of an event, in order.
pub(crate) fn each_key<K, M, R>(to_keys: &M, event: &Event<K>, mut sink: impl FnMut(Enqueued<R>))
where
    M: ToKeys<K, R> + ?Sized,
    R: Clone + Eq + Hash,
{
    let is_replay = event.is_replay();
    // Most events affect few keys, for which a linear search is cheaper than a set.
    let (mut few, mut more): (Vec<R>, HashSet<R, RandomState>) = Default::default();
    to_keys.keys(event, &mut |key| {
        let is_new = if few.contains(&key) {
            false
        } else if few.len() < FEW {
            few.push(key.clone());
            true
        } else {
            more.insert(key.clone())
        };
        if is_new {
            sink(Enqueued { key, is_replay });
        }
    });
}

impl<M, S> fmt::Debug for Enqueue<M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Enqueue")
    }
}

impl<K, M, S> ResourceEventHandler<K> for Enqueue<M, S>
where
    K: Cacheable,
    M: ToKeys<K>,
    S: Fn(Enqueued) + Send + Sync + 'static,
{
    async fn on_event(&self, event: &Event<K>) -> Result<(), HandlerError> {
        each_key(&self.to_keys, event, &self.sink);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    /// A key that counts its comparisons.
    #[derive(Clone)]
    struct Counted(u32, Arc<AtomicUsize>);

    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0 == other.0
        }
    }

    impl Eq for Counted {}

    impl Hash for Counted {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    #[test]
    fn duplicate_keys_of_an_event_are_found_in_linear_time() {
        let compared = Arc::new(AtomicUsize::new(0));
        let text = r#"{"metadata":{"name":"m","namespace":"shop"}}"#;
        let event = Event::Added {
            object: CachedObject::<ConfigMap>::decode(text).expect("the object can be decoded"),
            is_in_initial_list: false,
        };
        let counter = Arc::clone(&compared);
        let keys = mapped(move |_: &CachedObject<ConfigMap>| {
            let counter = Arc::clone(&counter);
            (0..6000).map(move |it| Counted(it % 3000, Arc::clone(&counter)))
        });
        let mut given = Vec::new();
        each_key(&keys, &event, |it| given.push(it.key.0));
        assert_eq!(given, (0..3000).collect::<Vec<_>>());
        let compared = compared.load(Ordering::Relaxed);
        assert!(compared < 60_000, "{compared} comparisons");
    }
}
