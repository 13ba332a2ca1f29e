//! `ControllerBuilder`: which changes concern which keys, and how they are worked on.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::controller::{Controller, Registered};
use super::manager::Manager;
use super::sharding::{ShardKeys, Sharding, place_of};
use crate::cache::{HandlerRegistration, SharedInformer, SharedInformerFactory};
use crate::handler::{AnyEvent, Event, Predicate, ResourceEventHandler, ToKeys, enqueue};
use crate::metrics::Metrics;
use crate::queue::{AddOptions, LOW_PRIORITY, RateLimiter, WorkQueue};
use crate::reconcile::{CacheState, Caches, Doors, Gate, Reconciler, Shard, Workers, WorkersConfig};
use crate::{Cacheable, Error, ObjectKey, ResourceVersion};

/// A watch that is to begin: it gets the queue, and answers with how to wait for it and how to end it.
pub(super) type Watch<R = ObjectKey> = Box<dyn FnOnce(&Intake<R>) -> Result<Registered, Error> + Send>;

/// A source of keys that is no informer; it runs until the token is cancelled.
pub(super) type Source<R = ObjectKey> =
    Box<dyn FnOnce(WorkQueue<R>, CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Decides about events of all types.
pub(super) type Filter = Arc<dyn Fn(&AnyEvent<'_>) -> bool + Send + Sync>;

/// The place of a key among those that are shared.
pub(super) type PlaceOf<R> = fn(&R) -> u64;

/// Requirements of a controller's key.
pub trait RequestKey: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {}

impl<R: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static> RequestKey for R {}

/// The queue that a watch adds keys to, and the filters of its events.
#[derive(Clone)]
pub(super) struct Intake<R: RequestKey> {
    pub(super) queue: WorkQueue<R>,
    pub(super) filters: Arc<[Filter]>,
    /// Present if the keys are shared.
    pub(super) shard: Option<Arc<ShardKeys<R>>>,
}

impl<R: RequestKey> Intake<R> {
    /// Puts a key into the queue, if it is of this replica. One of a first list has a low priority.
    pub(super) fn add(&self, key: R, is_replay: bool) {
        if self.shard.as_ref().is_some_and(|it| !it.takes(&key)) {
            return;
        }
        let is_low = is_replay && self.queue.has_priorities();
        let priority = if is_low { LOW_PRIORITY } else { 0 };
        self.queue.add_with(
            key,
            AddOptions {
                priority,
                ..AddOptions::default()
            },
        );
    }

    /// Begins to put keys of an informer's events into the queue.
    pub(super) fn watch<K: Cacheable>(
        &self,
        informer: &SharedInformer<K>,
        to_keys: impl ToKeys<K, R>,
        predicate: impl Predicate<K>,
    ) -> Result<HandlerRegistration, Error> {
        let (intake, filters) = (self.clone(), Arc::clone(&self.filters));
        let to_keys = Arc::new(to_keys);
        let passes = Arc::new(move |event: &Event<K>| {
            let any = AnyEvent::from(event);
            filters.iter().all(|filter| filter(&any)) && predicate.passes(event)
        });
        let told = Arc::clone(&to_keys);
        let handler = enqueue::into_keys::<K, _, R>(told, move |enqueued| {
            intake.add(enqueued.key, enqueued.is_replay);
        });
        let is_told = Arc::clone(&passes);
        let registration = informer.add_handler(handler.only(move |event: &Event<K>| is_told(event)))?;
        if let Some(shard) = &self.shard {
            let (cache, watched) = (informer.cache(), registration.clone());
            shard.replay_by(Box::new(move |push| {
                for object in cache.snapshot().iter() {
                    let event = Event::Added {
                        object: object.clone(),
                        is_in_initial_list: true,
                    };
                    if passes(&event) {
                        to_keys.keys(&event, push);
                    }
                }
                !watched.has_ended()
            }));
        }
        Ok(registration)
    }
}

/// Default time for caches to sync.
pub(super) const CACHE_SYNC_TIMEOUT: Duration = Duration::from_secs(120);

/// Options of a [`Controller`]. See there for a whole one.
///
/// One of [`Manager::controller`] knows its manager, and ends with [`complete`](ControllerBuilder::complete); any other
/// ends with [`build`](ControllerBuilder::build).
#[must_use = "a builder does nothing until `build` or `complete` is called"]
pub struct ControllerBuilder<M = (), R: RequestKey = ObjectKey> {
    manager: M,
    name: String,
    pub(super) factory: SharedInformerFactory,
    pub(super) owner_kind: Option<(String, String, bool)>,
    pub(super) watches: Vec<Watch<R>>,
    pub(super) sources: Vec<Source<R>>,
    filters: Vec<Filter>,
    /// Tell informers how long the controller waits for them.
    pub(super) waits: Vec<Box<dyn Fn(Duration) + Send>>,
    pub(super) caches: Caches,
    metrics: Metrics,
    limiter: Option<Box<dyn RateLimiter<R>>>,
    is_by_priority: bool,
    is_gated: bool,
    workers: WorkersConfig,
    cache_sync_timeout: Duration,
    needs_leader_election: bool,
    is_warmed_up: bool,
    sharding: Option<(Sharding, PlaceOf<R>)>,
    pub(super) faults: Vec<String>,
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
}

impl<R: RequestKey> ControllerBuilder<Manager, R> {
    /// Builds the controller, and answers with the manager that is to run it.
    pub(super) fn apart(self, reconciler: impl Reconciler<R>) -> Result<(Manager, Controller<R>), Error> {
        let manager = self.manager.clone();
        Ok((manager, self.build(reconciler)?))
    }

    /// Builds the controller and gives it to the manager, which runs it (controller-runtime's `Complete`).
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build) and [`Manager::add`].
    pub fn complete(self, reconciler: impl Reconciler<R>) -> Result<(), Error> {
        let manager = self.manager.clone();
        manager.add(self.build(reconciler)?)
    }
}

impl<M> ControllerBuilder<M> {
    /// Works on other keys than those of objects (controller-runtime's `TypedBuilder`): what is watched from here on is
    /// mapped to them. Its rate limiter is the default one.
    ///
    /// ```
    /// use informer::handler::enqueue;
    /// use informer::reconcile::{Action, ReconcileError, Request};
    /// use informer::runtime::Manager;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// # fn add(manager: &Manager) -> Result<(), informer::Error> {
    /// // One request for all Pods of a node.
    /// let node = enqueue::mapped(|pod: &informer::Object<Pod>| {
    ///     let spec = pod.typed().ok().and_then(|it| it.spec.clone());
    ///     spec.and_then(|it| it.node_name)
    /// });
    /// manager.controller("nodes").keyed_by::<String>().watches::<Pod>(node).complete(|request: Request<String>| async move {
    ///     println!("node {}", request.key);
    ///     Ok::<_, ReconcileError>(Action::await_change())
    /// })
    /// # }
    /// ```
    pub fn keyed_by<R: RequestKey>(self) -> ControllerBuilder<M, R> {
        let mut faults = self.faults;
        if !self.watches.is_empty() || !self.sources.is_empty() {
            faults.push("`keyed_by` comes after something is watched".to_owned());
        }
        if self.sharding.is_some() {
            faults.push("`keyed_by` comes after `sharded`".to_owned());
        }
        ControllerBuilder {
            filters: self.filters,
            metrics: self.metrics,
            is_by_priority: self.is_by_priority,
            is_gated: self.is_gated,
            workers: self.workers,
            cache_sync_timeout: self.cache_sync_timeout,
            needs_leader_election: self.needs_leader_election,
            is_warmed_up: self.is_warmed_up,
            faults,
            ..ControllerBuilder::with(self.manager, &self.name, &self.factory)
        }
    }
}

impl<M, R: RequestKey> ControllerBuilder<M, R> {
    pub(super) fn with(manager: M, name: &str, factory: &SharedInformerFactory) -> Self {
        Self {
            manager,
            name: name.to_owned(),
            factory: factory.clone(),
            owner_kind: None,
            watches: Vec::new(),
            sources: Vec::new(),
            filters: Vec::new(),
            waits: Vec::new(),
            caches: Caches::default(),
            metrics: Metrics::new(),
            limiter: None,
            is_by_priority: true,
            is_gated: true,
            workers: WorkersConfig {
                name: name.to_owned(),
                concurrency: 1,
                timeout: None,
                recovers_panics: true,
                stop: Arc::default(),
            },
            cache_sync_timeout: CACHE_SYNC_TIMEOUT,
            needs_leader_election: true,
            is_warmed_up: false,
            sharding: None,
            faults: Vec::new(),
        }
    }

    /// Sets a filter for events of all types (controller-runtime's `WithEventFilter`); further calls add filters. It
    /// holds for watches that were added before as for later ones.
    pub fn with_event_filter(mut self, filter: impl Fn(&AnyEvent<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.filters.push(Arc::new(filter));
        self
    }

    /// Sets the number of keys worked on at a time. Default 1.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.workers.concurrency = concurrency;
        self
    }

    /// Sets the rate limiter of failed keys. Default: 5 ms, doubled by each failure of a key up to 1,000 s; with
    /// [`first_come_first_served`](Self::first_come_first_served) also 10 a second for all keys together.
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<R> + 'static) -> Self {
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

    /// Limits the time of one reconcile; then its future is dropped, which is an error. Default: no limit.
    pub fn reconcile_timeout(mut self, timeout: Duration) -> Self {
        self.workers.timeout = Some(timeout);
        self
    }

    /// Limits the time for the caches to sync; then the controller fails, and with it its manager. Default 2 minutes.
    pub fn cache_sync_timeout(mut self, timeout: Duration) -> Self {
        self.cache_sync_timeout = timeout;
        self
    }

    /// A panic of a reconcile ends the controller. By default it is an error of its key.
    pub fn propagate_panics(mut self) -> Self {
        self.workers.recovers_panics = false;
        self
    }

    /// Runs the controller on every process. By default only the leader runs it.
    pub fn without_leader_election(mut self) -> Self {
        self.needs_leader_election = false;
        self
    }

    /// Its queue is filled before it is leader, so that work begins at once then (controller-runtime's `EnableWarmup`).
    pub fn warm_up(mut self) -> Self {
        self.is_warmed_up = true;
        self
    }

    /// Its keys are shared with other replicas: this one works on its share, and every replica runs the controller,
    /// whoever leads. A key belongs to a replica by its text. Keys that a [`source`](Self::source) tells one replica
    /// alone are lost if they are for another: it has to tell all.
    pub fn sharded(mut self, sharding: &Sharding) -> Self
    where
        R: fmt::Display,
    {
        self.sharding = Some((sharding.clone(), place_of::<R>));
        self.needs_leader_election = false;
        self
    }

    /// Sets the registry for its metrics. Default: none, or that of its manager.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// The controller.
    ///
    /// # Errors
    ///
    /// If nothing is watched, `for_` is called twice, or `owns` comes before it.
    pub fn build(self, reconciler: impl Reconciler<R>) -> Result<Controller<R>, Error> {
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
        let stopping = Arc::clone(&self.workers.stop);
        let gate = self.is_gated.then(|| Arc::new(Gate::new(self.caches)));
        let shard = self.sharding.map(|(sharding, place)| sharding.keys(place, &queue));
        let doors = Doors {
            gate: gate.clone(),
            shard: shard.clone().map(|it| it as Arc<dyn Shard<R>>),
        };
        let workers = Workers::new(queue.clone(), reconciler, self.workers, doors, &self.metrics);
        Ok(Controller::new(super::controller::Parts {
            name: self.name,
            factory: self.factory,
            intake: Intake {
                queue,
                filters: self.filters.into(),
                shard,
            },
            watches: self.watches,
            sources: self.sources,
            gate,
            workers: Box::pin(workers.run()),
            later: super::later_watches::Later::default(),
            stopping,
            cache_sync_timeout: self.cache_sync_timeout,
            needs_leader_election: self.needs_leader_election,
            is_warmed_up: self.is_warmed_up,
        }))
    }
}

pub(super) fn registered<K: Cacheable>(informer: SharedInformer<K>, registration: HandlerRegistration) -> Registered {
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

    fn is_deleting(&self, key: &ObjectKey) -> bool {
        Self::is_deleting(self, key)
    }

    fn restored(&self, key: &ObjectKey) -> Option<Instant> {
        Self::restored(self, key)
    }
}

impl<M, R: RequestKey> fmt::Debug for ControllerBuilder<M, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerBuilder")
            .field("name", &self.name)
            .field("watches", &self.watches.len())
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}
