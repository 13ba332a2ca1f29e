//! `ControllerBuilder`: which changes concern which keys, and how they are worked on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::Resource;
use kube::core::PartialObjectMeta;
use tokio_util::sync::CancellationToken;

use super::controller::{Controller, Registered};
use super::manager::Manager;
use crate::cache::{HandlerRegistration, SharedInformer, SharedInformerFactory};
use crate::handler::{Event, Predicate, ResourceEventHandler, ToKeys, enqueue};
use crate::metrics::Metrics;
use crate::queue::{AddOptions, LOW_PRIORITY, RateLimiter, WorkQueue};
use crate::reconcile::{CacheState, Caches, Gate, Reconciler, Workers, WorkersConfig};
use crate::{Cacheable, Error, ObjectKey, ResourceVersion};

/// A watch that is to begin: it gets the queue, and answers with how to wait for it and how to end it.
pub(super) type Watch = Box<dyn FnOnce(&WorkQueue<ObjectKey>) -> Result<Registered, Error> + Send>;

/// A source of keys that is no informer; it runs until the token is cancelled.
pub(super) type Source = Box<dyn FnOnce(WorkQueue<ObjectKey>, CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// How long caches may take to sync where nobody says otherwise.
pub(super) const CACHE_SYNC_TIMEOUT: Duration = Duration::from_secs(120);

/// How a [`Controller`] is to be. See there for a whole one.
///
/// One of [`Manager::controller`] knows its manager, and ends with [`complete`](ControllerBuilder::complete); any other
/// ends with [`build`](ControllerBuilder::build).
#[must_use = "a builder does nothing until `build` or `complete` is called"]
pub struct ControllerBuilder<M = ()> {
    manager: M,
    name: String,
    factory: SharedInformerFactory,
    owner_kind: Option<(String, String, bool)>,
    watches: Vec<Watch>,
    sources: Vec<Source>,
    /// Tell informers how long the controller waits for them.
    waits: Vec<Box<dyn Fn(Duration) + Send>>,
    caches: Caches,
    metrics: Metrics,
    limiter: Option<Box<dyn RateLimiter<ObjectKey>>>,
    is_by_priority: bool,
    is_gated: bool,
    workers: WorkersConfig,
    cache_sync_timeout: Duration,
    needs_leader_election: bool,
    is_warmed_up: bool,
    faults: Vec<String>,
}

impl ControllerBuilder {
    /// A controller of this name, which its metrics and messages bear; its informers are the factory's.
    pub fn new(name: &str, factory: &SharedInformerFactory) -> Self {
        Self::with((), name, factory)
    }
}

impl ControllerBuilder<Manager> {
    pub(super) fn of_manager(name: &str, manager: &Manager) -> Self {
        Self::with(manager.clone(), name, &manager.factory()).metrics(&manager.metrics())
    }

    /// Builds the controller and gives it to the manager, which runs it (controller-runtime's `Complete`).
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build) and [`Manager::add`].
    pub fn complete(self, reconciler: impl Reconciler) -> Result<(), Error> {
        let manager = self.manager.clone();
        manager.add(self.build(reconciler)?)
    }
}

impl<M> ControllerBuilder<M> {
    fn with(manager: M, name: &str, factory: &SharedInformerFactory) -> Self {
        Self {
            manager,
            name: name.to_owned(),
            factory: factory.clone(),
            owner_kind: None,
            watches: Vec::new(),
            sources: Vec::new(),
            waits: Vec::new(),
            caches: Caches::new(),
            metrics: Metrics::new(),
            limiter: None,
            is_by_priority: true,
            is_gated: true,
            workers: WorkersConfig {
                name: name.to_owned(),
                concurrency: 1,
                timeout: None,
                recovers_panics: true,
                stop: CancellationToken::new(),
            },
            cache_sync_timeout: CACHE_SYNC_TIMEOUT,
            needs_leader_election: true,
            is_warmed_up: false,
            faults: Vec::new(),
        }
    }

    /// The type the controller is for: a change of an object is worked on under its own key. Once.
    pub fn for_<K>(self) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.for_where::<K>(|_: &Event<K>| true)
    }

    /// The same for events that pass a predicate.
    pub fn for_where<K>(mut self, predicate: impl Predicate<K>) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        let is_cluster_scoped =
            std::any::TypeId::of::<K::Scope>() == std::any::TypeId::of::<kube::core::ClusterResourceScope>();
        let kind = (K::group(&()).into_owned(), K::kind(&()).into_owned(), is_cluster_scoped);
        if self.owner_kind.replace(kind).is_some() {
            self.faults.push("`for_` was called twice".to_owned());
        }
        self.watches_where::<K>(enqueue::object(), predicate)
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
        let Some((group, kind, is_cluster_scoped)) = self.owner_kind.clone() else {
            self.faults
                .push(format!("`owns` of {} comes before `for_`", K::kind(&())));
            return self;
        };
        let owner = enqueue::owner_of_kind(&group, &kind, is_cluster_scoped).controller_only();
        self.watches_where::<K>(owner, predicate)
    }

    /// A type of which changes concern the keys that `to_keys` says: see [`enqueue`].
    pub fn watches<K: Cacheable + Resource<DynamicType = ()>>(self, to_keys: impl ToKeys<K>) -> Self {
        self.watches_where::<K>(to_keys, |_: &Event<K>| true)
    }

    /// The same for events that pass a predicate.
    pub fn watches_where<K>(self, to_keys: impl ToKeys<K>, predicate: impl Predicate<K>) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
    {
        let informer = self.factory.informer::<K>();
        self.informer(&informer, &(), to_keys, predicate)
    }

    /// The same, of which only the metadata is fetched and kept.
    pub fn watches_metadata<K>(self, to_keys: impl ToKeys<PartialObjectMeta<K>>) -> Self
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        let informer = self.factory.metadata::<K>();
        self.informer(&informer, &(), to_keys, |_: &Event<PartialObjectMeta<K>>| true)
    }

    /// An informer made elsewhere: of a dynamic type, or a part of the objects. It is run by whoever made it.
    pub fn informer<K: Cacheable>(
        mut self,
        informer: &SharedInformer<K>,
        resource: &K::DynamicType,
        to_keys: impl ToKeys<K>,
        predicate: impl Predicate<K>,
    ) -> Self {
        let path = format!("{}/{}", K::group(resource), K::plural(resource));
        self.caches.entry(path).or_default().push(Arc::new(informer.clone()));
        self.remote_informer(informer, to_keys, predicate)
    }

    /// An informer of another cluster. It is run by whoever made it. Its cache is not waited for to see what the
    /// controller writes, which it does at home.
    pub fn remote_informer<K: Cacheable>(
        mut self,
        informer: &SharedInformer<K>,
        to_keys: impl ToKeys<K>,
        predicate: impl Predicate<K>,
    ) -> Self {
        let (informer, waited_for) = (informer.clone(), informer.clone());
        self.waits
            .push(Box::new(move |timeout| waited_for.is_waited_for(timeout)));
        self.watches.push(Box::new(move |queue| {
            let queue = queue.clone();
            let has_priorities = queue.has_priorities();
            let handler = enqueue::into::<K, _>(to_keys, move |enqueued| {
                let is_low = enqueued.is_replay && has_priorities;
                let priority = if is_low { LOW_PRIORITY } else { 0 };
                queue.add_with(
                    enqueued.key,
                    AddOptions {
                        priority,
                        ..AddOptions::default()
                    },
                );
            });
            let registration = informer.add_handler(handler.only(predicate))?;
            Ok(registered(informer, registration))
        }));
        self
    }

    /// Any other source of keys (controller-runtime's `source.Func`): a function that adds to the queue until the token
    /// is cancelled. Keys that it adds are worked on as soon as the caches have synced.
    pub fn source<F, Fut>(mut self, source: F) -> Self
    where
        F: FnOnce(WorkQueue<ObjectKey>, CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.sources
            .push(Box::new(move |queue, stop| Box::pin(source(queue, stop))));
        self
    }

    /// Keys from a channel (`source.Channel`); the bound is the channel's.
    pub fn channel(self, mut keys: tokio::sync::mpsc::Receiver<ObjectKey>) -> Self {
        self.source(move |queue, stop| async move {
            while let Some(Some(key)) = stop.run_until_cancelled(keys.recv()).await {
                queue.add(key);
            }
        })
    }

    /// How many keys are worked on at a time. Default 1.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.workers.concurrency = concurrency;
        self
    }

    /// How long failed keys wait. Default: 5 ms, doubled by each failure of a key up to 1,000 s; with
    /// [`first_come_first_served`](Self::first_come_first_served) also 10 a second for all keys together.
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<ObjectKey> + 'static) -> Self {
        self.limiter = Some(Box::new(limiter));
        self
    }

    /// Without priorities. With them, which is the default, what changed comes before what a new list or a resync
    /// brings.
    pub fn first_come_first_served(mut self) -> Self {
        self.is_by_priority = false;
        self
    }

    /// Keys are worked on although the caches have not seen what was written for them last.
    ///
    /// Without this, a key is held back until the caches of the controller are at least as new as all that its last
    /// reconcile wrote of their objects by an observed client: [`Manager::client`], or one made with
    /// [`Writes::observe`](crate::reconcile::Writes::observe). A key that is held for more than 150 s fails with an
    /// error that names what it waits for, and is worked on at its next turn: a cache that stands still stops no key.
    pub fn without_read_your_writes(mut self) -> Self {
        self.is_gated = false;
        self
    }

    /// How long one reconcile may take; then it is dropped where it waits, which is an error. Default: for ever.
    pub fn reconcile_timeout(mut self, timeout: Duration) -> Self {
        self.workers.timeout = Some(timeout);
        self
    }

    /// How long the caches may take to sync; then the controller fails, and with it its manager. Default 2 minutes.
    pub fn cache_sync_timeout(mut self, timeout: Duration) -> Self {
        self.cache_sync_timeout = timeout;
        self
    }

    /// A panic of a reconcile ends the controller. By default it is an error of its key.
    pub fn propagate_panics(mut self) -> Self {
        self.workers.recovers_panics = false;
        self
    }

    /// It runs whoever leads. By default only the leader runs it.
    pub fn without_leader_election(mut self) -> Self {
        self.needs_leader_election = false;
        self
    }

    /// Its queue is filled before it is leader, so that work begins at once then (controller-runtime's `EnableWarmup`).
    pub fn warm_up(mut self) -> Self {
        self.is_warmed_up = true;
        self
    }

    /// Where it counts. Default: nowhere to be seen, or where its manager does.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// The controller.
    ///
    /// # Errors
    ///
    /// If nothing is watched, `for_` is called twice, or `owns` comes before it.
    pub fn build(self, reconciler: impl Reconciler) -> Result<Controller, Error> {
        let mut faults = self.faults;
        if self.watches.is_empty() && self.sources.is_empty() {
            faults.push("there is nothing to watch: `for_`, `watches` or `source` is missing".to_owned());
        }
        if let Some(fault) = faults.first() {
            return Err(Error::refused(format!("controller {:?}: {fault}", self.name)));
        }
        for wait in self.waits {
            wait(self.cache_sync_timeout);
        }
        let mut queue = WorkQueue::builder().named(&self.name, &self.metrics);
        if self.is_by_priority {
            queue = queue.by_priority();
        }
        if let Some(limiter) = self.limiter {
            queue = queue.rate_limiter(limiter);
        }
        let queue = queue.build();
        let stopping = self.workers.stop.clone();
        let gate = (self.is_gated && !self.caches.is_empty()).then(|| Gate::new(self.caches));
        let workers = Workers::new(queue.clone(), reconciler, self.workers, gate, &self.metrics);
        Ok(Controller::new(super::controller::Parts {
            name: self.name,
            factory: self.factory,
            queue,
            watches: self.watches,
            sources: self.sources,
            workers: Box::pin(workers.run()),
            stopping,
            cache_sync_timeout: self.cache_sync_timeout,
            needs_leader_election: self.needs_leader_election,
            is_warmed_up: self.is_warmed_up,
        }))
    }
}

fn registered<K: Cacheable>(informer: SharedInformer<K>, registration: HandlerRegistration) -> Registered {
    let (waiting, looking, failing) = (registration.clone(), registration.clone(), informer.clone());
    Registered {
        name: informer.name(),
        reason: Box::new(move || failing.reason()),
        has_synced: Box::new(move || looking.has_synced()),
        synced: Box::pin(async move { waiting.synced().await }),
        remove: Box::new(move || informer.remove_handler(&registration)),
    }
}

impl<K: Cacheable> CacheState for SharedInformer<K> {
    fn may_have(&self, key: &ObjectKey, labels: Option<&BTreeMap<String, String>>) -> bool {
        Self::may_have(self, key, labels)
    }

    fn resource_version(&self, key: &ObjectKey) -> ResourceVersion {
        self.version_for(key)
    }

    fn uid(&self, key: &ObjectKey) -> Option<String> {
        Self::uid(self, key)
    }
}

impl<M> fmt::Debug for ControllerBuilder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerBuilder")
            .field("name", &self.name)
            .field("watches", &self.watches.len())
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}
