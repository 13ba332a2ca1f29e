//! Maps a change to the keys of the objects it concerns.
//!
//! ```
//! use informer::handler::{Enqueued, enqueue};
//! use k8s_openapi::api::apps::v1::ReplicaSet;
//! use k8s_openapi::api::core::v1::Pod;
//!
//! // A change of a Pod is worked on as its ReplicaSet.
//! let handler = enqueue::into::<Pod, _>(enqueue::controller::<ReplicaSet>(), |enqueued: Enqueued| {
//!     println!("{}", enqueued.key)
//! });
//! # let _ = handler;
//! ```

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;

use kube::Resource;
use kube::core::ClusterResourceScope;

use crate::ObjectKey;
use crate::object::{Cacheable, Object};

use super::event_handler::{Event, HandlerError, ResourceEventHandler};

/// Says which keys an event concerns (controller-runtime's `EventHandler`).
///
/// The keys are those of a controller's requests: of objects, unless the controller has other ones
/// ([`ControllerBuilder::keyed_by`](crate::runtime::ControllerBuilder::keyed_by)).
pub trait ToKeys<K, R = ObjectKey>: Send + Sync + 'static {
    /// Calls `push` for each of them, in a stated order; one key may come twice.
    fn keys(&self, event: &Event<K>, push: &mut dyn FnMut(R));
}

impl<K, R, M: ToKeys<K, R>> ToKeys<K, R> for std::sync::Arc<M> {
    fn keys(&self, event: &Event<K>, push: &mut dyn FnMut(R)) {
        (**self).keys(event, push);
    }
}

/// A key on its way into a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued<R = ObjectKey> {
    /// The key to add to the queue.
    pub key: R,
    /// Nothing changed: the event is of the initial list, or a resync. A queue with priorities takes it later.
    pub is_replay: bool,
}

/// The object itself (`EnqueueRequestForObject`).
#[derive(Clone, Copy, Debug)]
pub struct ForObject;

/// The key of the object that changed.
pub fn object() -> ForObject {
    ForObject
}

impl<K: Cacheable> ToKeys<K> for ForObject {
    fn keys(&self, event: &Event<K>, push: &mut dyn FnMut(ObjectKey)) {
        push(event.object().key().clone());
    }
}

/// The owners of the object, of one type (`EnqueueRequestForOwner`).
#[derive(Clone, Debug)]
pub struct ForOwner {
    group: String,
    kind: String,
    is_cluster_scoped: bool,
    is_controller_only: bool,
}

/// The keys of all owners of the type `O`: those of the old state first, then those of the new.
pub fn owner<O>() -> ForOwner
where
    O: Resource<DynamicType = ()>,
    O::Scope: 'static,
{
    let is_cluster_scoped = TypeId::of::<O::Scope>() == TypeId::of::<ClusterResourceScope>();
    owner_of_kind(&O::group(&()), &O::kind(&()), is_cluster_scoped)
}

/// The same of a type that is known by its names.
pub fn owner_of_kind(group: &str, kind: &str, is_cluster_scoped: bool) -> ForOwner {
    ForOwner {
        group: group.to_owned(),
        kind: kind.to_owned(),
        is_cluster_scoped,
        is_controller_only: false,
    }
}

/// The key of the owner that is the controller, if it is of the type `O`.
pub fn controller<O>() -> ForOwner
where
    O: Resource<DynamicType = ()>,
    O::Scope: 'static,
{
    owner::<O>().controller_only()
}

impl ForOwner {
    /// Only the owner with `controller: true`.
    #[must_use]
    pub fn controller_only(mut self) -> Self {
        self.is_controller_only = true;
        self
    }

    fn of_object<K: Cacheable>(&self, object: &Object<K>, push: &mut dyn FnMut(ObjectKey)) {
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
        // An object that changes hands concerns its old owner, too.
        if let Some(old) = event.old() {
            self.of_object(old, push);
        }
        self.of_object(event.object(), push);
    }
}

/// Maps objects by a function (`EnqueueRequestsFromMapFunc`).
pub struct Mapped<K, F>(F, PhantomData<fn(K)>);

/// The keys that `f` finds: those of the old state first, then those of the new.
pub fn mapped<K, F, I>(f: F) -> Mapped<K, F>
where
    F: Fn(&Object<K>) -> I + Send + Sync + 'static,
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
    F: Fn(&Object<K>) -> I + Send + Sync + 'static,
    I: IntoIterator<Item = R>,
{
    fn keys(&self, event: &Event<K>, push: &mut dyn FnMut(R)) {
        if let Some(old) = event.old() {
            (self.0)(old).into_iter().for_each(&mut *push);
        }
        (self.0)(event.object()).into_iter().for_each(push);
    }
}

/// A handler that hands keys on; see [`into`].
pub struct Enqueue<M, S, R = ObjectKey> {
    to_keys: M,
    sink: S,
    keys: PhantomData<fn(R)>,
}

/// A handler that gives `sink` each key of each event, in order. Of one event a key is given once.
pub fn into<K, M>(to_keys: M, sink: impl Fn(Enqueued) + Send + Sync + 'static) -> impl ResourceEventHandler<K>
where
    K: Cacheable,
    M: ToKeys<K>,
{
    into_keys(to_keys, sink)
}

/// The same for keys of any type.
pub(crate) fn into_keys<K, M, R>(
    to_keys: M,
    sink: impl Fn(Enqueued<R>) + Send + Sync + 'static,
) -> impl ResourceEventHandler<K>
where
    K: Cacheable,
    M: ToKeys<K, R>,
    R: Clone + Eq + Send + Sync + 'static,
{
    Enqueue {
        to_keys,
        sink,
        keys: PhantomData,
    }
}

impl<M, S, R> fmt::Debug for Enqueue<M, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Enqueue")
    }
}

impl<K, M, S, R> ResourceEventHandler<K> for Enqueue<M, S, R>
where
    K: Cacheable,
    M: ToKeys<K, R>,
    S: Fn(Enqueued<R>) + Send + Sync + 'static,
    R: Clone + Eq + Send + Sync + 'static,
{
    async fn on_event(&self, event: &Event<K>) -> Result<(), HandlerError> {
        let is_replay = event.is_replay();
        // One event has few keys: searching them is cheaper than a set.
        let mut given: Vec<R> = Vec::new();
        self.to_keys.keys(event, &mut |key| {
            if !given.contains(&key) {
                given.push(key.clone());
                (self.sink)(Enqueued { key, is_replay });
            }
        });
        Ok(())
    }
}
