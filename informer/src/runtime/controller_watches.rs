//! The sources of a controller: its own type, owned types and watched types.

use std::any::TypeId;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use kube::Resource;
use kube::core::{ApiResource, ClusterResourceScope, DynamicObject, PartialObjectMeta};
use tokio_util::sync::CancellationToken;

use super::controller_builder::{ControllerBuilder, RequestKey, registered};
use crate::Cacheable;
use crate::cache::SharedInformer;
use crate::handler::{Event, Predicate, ToKeys, enqueue};
use crate::queue::WorkQueue;
use crate::reconcile::Collection;

impl<M> ControllerBuilder<M> {
    /// The type the controller is for: a change of an object is worked on under its own key. Once.
    pub fn for_<K>(self) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.for_where::<K>(|_: &Event<K>| true)
    }

    /// The same for events that pass a predicate.
    pub fn for_where<K>(self, predicate: impl Predicate<K>) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        let is_of_cluster = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
        self.owner(&K::group(&()), &K::kind(&()), is_of_cluster)
            .watches_where::<K>(enqueue::object(), predicate)
    }

    /// A type of which objects belong to those that the controller is for: a change is worked on under the key of the
    /// owner that is a controller. Call it after [`for_`](Self::for_).
    pub fn owns<K: Cacheable + Resource<DynamicType = ()>>(self) -> Self {
        self.owns_where::<K>(|_: &Event<K>| true)
    }

    /// The same for events that pass a predicate.
    pub fn owns_where<K>(mut self, predicate: impl Predicate<K>) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
    {
        match self.by_owner(&K::kind(&())) {
            Some(owner) => self.watches_where::<K>(owner, predicate),
            None => self,
        }
    }

    /// The type the controller is for, of which only the metadata is fetched and kept (`For` with `OnlyMetadata`).
    pub fn for_metadata<K>(self) -> Self
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
        K::Scope: 'static,
    {
        let is_of_cluster = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
        self.owner(&K::group(&()), &K::kind(&()), is_of_cluster)
            .watches_metadata::<K>(enqueue::object())
    }

    /// The type the controller is for, with namespaces and known by its names.
    pub fn for_dynamic(self, resource: &ApiResource) -> Self {
        self.owner(&resource.group, &resource.kind, false)
            .watches_dynamic(resource, enqueue::object())
    }

    /// A type of which objects belong to those that the controller is for; only the metadata is fetched and kept.
    pub fn owns_metadata<K>(mut self) -> Self
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
        K::Scope: 'static,
    {
        match self.by_owner(&K::kind(&())) {
            Some(owner) => self.watches_metadata::<K>(owner),
            None => self,
        }
    }

    /// The same of a type that is known by its names.
    pub fn owns_dynamic(mut self, resource: &ApiResource) -> Self {
        match self.by_owner(&resource.kind) {
            Some(owner) => self.watches_dynamic(resource, owner),
            None => self,
        }
    }

    fn owner(mut self, group: &str, kind: &str, is_of_cluster: bool) -> Self {
        let owner = (group.to_owned(), kind.to_owned(), is_of_cluster);
        if self.owner_kind.replace(owner).is_some() {
            self.faults.push("`for_` was called twice".to_owned());
        }
        self
    }

    /// Returns the mapping of an owned type to its owner.
    fn by_owner(&mut self, owned: &str) -> Option<enqueue::ForOwner> {
        let Some((group, kind, is_of_cluster)) = &self.owner_kind else {
            self.faults.push(format!("`owns` of {owned} comes before `for_`"));
            return None;
        };
        Some(enqueue::owner_of_kind(group, kind, *is_of_cluster).controller_only())
    }
}

impl<M, R: RequestKey> ControllerBuilder<M, R> {
    /// A type of which changes concern the keys that `to_keys` says: see [`enqueue`].
    pub fn watches<K: Cacheable + Resource<DynamicType = ()>>(self, to_keys: impl ToKeys<K, R>) -> Self {
        self.watches_where::<K>(to_keys, |_: &Event<K>| true)
    }

    /// The same for events that pass a predicate.
    pub fn watches_where<K>(self, to_keys: impl ToKeys<K, R>, predicate: impl Predicate<K>) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
    {
        let informer = self.factory.informer::<K>();
        self.informer(&informer, &(), to_keys, predicate)
    }

    /// The same, of which only the metadata is fetched and kept.
    pub fn watches_metadata<K>(self, to_keys: impl ToKeys<PartialObjectMeta<K>, R>) -> Self
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        let informer = self.factory.metadata::<K>();
        self.informer(&informer, &(), to_keys, |_: &Event<PartialObjectMeta<K>>| true)
    }

    /// A type that is known by its names.
    pub fn watches_dynamic(self, resource: &ApiResource, to_keys: impl ToKeys<DynamicObject, R>) -> Self {
        let informer = self.factory.dynamic(resource);
        self.informer(&informer, resource, to_keys, |_: &Event<DynamicObject>| true)
    }

    /// Watches an informer made elsewhere: of a dynamic type, or a part of the objects. Its maker runs it.
    pub fn informer<K: Cacheable>(
        mut self,
        informer: &SharedInformer<K>,
        resource: &K::DynamicType,
        to_keys: impl ToKeys<K, R>,
        predicate: impl Predicate<K>,
    ) -> Self {
        self.caches
            .add(Collection::of::<K>(None, resource), Arc::new(informer.clone()));
        self.remote_informer(informer, to_keys, predicate)
    }

    /// Watches an informer of another cluster. Its maker runs it. No key is held back until its cache has seen a write:
    /// nobody knows which writes are to that cluster. A controller of [`Clusters`](super::Clusters) does.
    pub fn remote_informer<K: Cacheable>(
        mut self,
        informer: &SharedInformer<K>,
        to_keys: impl ToKeys<K, R>,
        predicate: impl Predicate<K>,
    ) -> Self {
        let (informer, waited_for) = (informer.clone(), informer.clone());
        self.waits
            .push(Box::new(move |timeout| waited_for.is_waited_for(timeout)));
        self.watches.push(Box::new(move |intake| {
            let registration = intake.watch(&informer, to_keys, predicate)?;
            Ok(registered(informer, registration))
        }));
        self
    }

    /// Any other source of keys (controller-runtime's `source.Func`): a function that adds to the queue until the token
    /// is cancelled. Keys that it adds are worked on as soon as the caches have synced.
    pub fn source<F, Fut>(mut self, source: F) -> Self
    where
        F: FnOnce(WorkQueue<R>, CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.sources
            .push(Box::new(move |queue, stop| Box::pin(source(queue, stop))));
        self
    }

    /// Keys from a channel (`source.Channel`); the bound is the channel's.
    pub fn channel(self, mut keys: tokio::sync::mpsc::Receiver<R>) -> Self {
        self.source(move |queue, stop| async move {
            while let Some(Some(key)) = stop.run_until_cancelled(keys.recv()).await {
                queue.add(key);
            }
        })
    }

    /// Keys from a stream, until it ends.
    pub fn stream(self, keys: impl Stream<Item = R> + Send + 'static) -> Self {
        self.source(move |queue, stop| async move {
            let mut keys = std::pin::pin!(keys);
            while let Some(Some(key)) = stop.run_until_cancelled(keys.next()).await {
                queue.add(key);
            }
        })
    }
}
