//! Watches and other sources of keys of a [`ControllerBuilder`](super::ControllerBuilder).

use std::any::TypeId;
use std::sync::Arc;

use futures::{Stream, StreamExt};
use kube::Resource;
use kube::core::{ApiResource, ClusterResourceScope, DynamicObject, PartialObjectMeta};
use tokio_util::sync::CancellationToken;

use super::controller_builder::ControllerBuilder;
use super::intake::registered;
use super::request_key::RequestKey;
use crate::Cacheable;
use crate::cache::SharedInformer;
use crate::handler::{Event, Predicate, ToKeys, enqueue};
use crate::queue::WorkQueue;
use crate::reconcile::Collection;

impl<M> ControllerBuilder<M> {
    /// Sets the type that the controller reconciles: an event of an object enqueues its key. May only be called once.
    pub fn for_<K>(self) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.for_where::<K>(|_: &Event<K>| true)
    }

    /// Same as [`for_`](Self::for_), but only for events that pass a predicate.
    pub fn for_where<K>(self, predicate: impl Predicate<K>) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        let is_of_cluster = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
        self.owner(&K::group(&()), &K::kind(&()), is_of_cluster)
            .watches_where::<K>(enqueue::object(), predicate)
    }

    /// Watches a type of dependent objects: events enqueue the owner that is marked as controller. Must be called after
    /// [`for_`](Self::for_).
    pub fn owns<K: Cacheable + Resource<DynamicType = ()>>(self) -> Self {
        self.owns_where::<K>(|_: &Event<K>| true)
    }

    /// Same as [`owns`](Self::owns), but only for events that pass a predicate.
    pub fn owns_where<K>(mut self, predicate: impl Predicate<K>) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
    {
        match self.by_owner(&K::kind(&())) {
            Some(owner) => self.watches_where::<K>(owner, predicate),
            None => self,
        }
    }

    /// Same as [`for_`](Self::for_), but only fetches and caches metadata (controller-runtime's `For` with
    /// `OnlyMetadata`).
    pub fn for_metadata<K>(self) -> Self
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
        K::Scope: 'static,
    {
        let is_of_cluster = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
        self.owner(&K::group(&()), &K::kind(&()), is_of_cluster)
            .watches_metadata::<K>(enqueue::object())
    }

    /// Same as [`for_`](Self::for_), for a namespaced resource without a Rust type.
    pub fn for_dynamic(self, resource: &ApiResource) -> Self {
        self.owner(&resource.group, &resource.kind, false)
            .watches_dynamic(resource, enqueue::object())
    }

    /// Same as [`owns`](Self::owns), but only fetches and caches metadata.
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

    /// Same as [`owns`](Self::owns), for a resource without a Rust type.
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

    /// Returns the mapping from dependents of type `owned` to their owner. Records an error if `for_` has not been
    /// called.
    fn by_owner(&mut self, owned: &str) -> Option<enqueue::ForOwner> {
        let Some((group, kind, is_of_cluster)) = &self.owner_kind else {
            self.faults
                .push(format!("`for_` must be called before `owns` for {owned}"));
            return None;
        };
        Some(enqueue::owner_of_kind(group, kind, *is_of_cluster).controller_only())
    }
}

impl<M, R: RequestKey> ControllerBuilder<M, R> {
    /// Watches a type. Events enqueue the keys that `to_keys` returns; see [`enqueue`].
    pub fn watches<K: Cacheable + Resource<DynamicType = ()>>(self, to_keys: impl ToKeys<K, R>) -> Self {
        self.watches_where::<K>(to_keys, |_: &Event<K>| true)
    }

    /// Same as [`watches`](Self::watches), but only for events that pass a predicate.
    pub fn watches_where<K>(self, to_keys: impl ToKeys<K, R>, predicate: impl Predicate<K>) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
    {
        let informer = self.factory.informer::<K>();
        self.informer(&informer, &(), to_keys, predicate)
    }

    /// Same as [`watches`](Self::watches), but only fetches and caches metadata.
    pub fn watches_metadata<K>(self, to_keys: impl ToKeys<PartialObjectMeta<K>, R>) -> Self
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        let informer = self.factory.metadata::<K>();
        self.informer(&informer, &(), to_keys, |_: &Event<PartialObjectMeta<K>>| true)
    }

    /// Same as [`watches`](Self::watches), for a resource without a Rust type.
    pub fn watches_dynamic(self, resource: &ApiResource, to_keys: impl ToKeys<DynamicObject, R>) -> Self {
        let informer = self.factory.dynamic(resource);
        self.informer(&informer, resource, to_keys, |_: &Event<DynamicObject>| true)
    }

    /// Watches with an existing informer, for example an informer of a dynamic type or of selected objects. The caller
    /// has to run the informer.
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

    /// Watches with an informer of a different cluster. The caller has to run the informer. Reconciles do not wait
    /// until its cache contains the controller's own writes, because the controller cannot recognise writes to that
    /// cluster. Only controllers of [`Clusters`](super::Clusters) wait for writes to other clusters.
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

    /// Adds a source of keys other than a watch (controller-runtime's `source.Func`): a function that adds keys to the
    /// queue until the token is cancelled. Its keys are reconciled once the caches have synced. If it panics, the
    /// controller ends with an error.
    pub fn source<F, Fut>(mut self, source: F) -> Self
    where
        F: FnOnce(WorkQueue<R>, CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.sources
            .push(Box::new(move |intake, stop| Box::pin(source(intake.queue, stop))));
        self
    }

    /// Reconciles all objects again when the stream yields an item (kube-runtime's `reconcile_all_on`), for example
    /// after the configuration of the process was reloaded. Enqueues the keys of all objects in the watched caches, but
    /// not keys from a [`source`](Self::source). Several streams can be added. The end of a stream has no effect.
    pub fn reconcile_all_on(mut self, trigger: impl Stream<Item = ()> + Send + 'static) -> Self {
        self.replays.get_or_insert_default();
        self.sources.push(Box::new(move |intake, stop| {
            Box::pin(async move {
                let mut trigger = std::pin::pin!(trigger);
                while let Some(Some(())) = stop.run_until_cancelled(trigger.next()).await {
                    intake.add_all();
                }
            })
        }));
        self
    }

    /// Adds the keys that are received from a channel (controller-runtime's `source.Channel`), without a buffer in
    /// between.
    pub fn channel(self, mut keys: tokio::sync::mpsc::Receiver<R>) -> Self {
        self.source(move |queue, stop| async move {
            while let Some(Some(key)) = stop.run_until_cancelled(keys.recv()).await {
                queue.add(key);
            }
        })
    }

    /// Adds keys from a stream until it ends.
    pub fn stream(self, keys: impl Stream<Item = R> + Send + 'static) -> Self {
        self.source(move |queue, stop| async move {
            let mut keys = std::pin::pin!(keys);
            while let Some(Some(key)) = stop.run_until_cancelled(keys.next()).await {
                queue.add(key);
            }
        })
    }
}
