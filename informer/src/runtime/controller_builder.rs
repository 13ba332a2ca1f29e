//! `ControllerBuilder`: the watches of a controller, the keys they enqueue, and how keys are reconciled.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::cluster_key::ClusterKey;
use super::controller::{Controller, Parts};
use super::intake::{Filter, Intake, Source, Watch};
use super::later_watches::Later;
use super::redelivery::EventPanics;
use super::replays::Replays;
use super::request_key::RequestKey;
use super::sharding::{Places, Sharding};
use crate::cache::{CACHE_SYNC_TIMEOUT, SharedInformerFactory};
use crate::handler::AnyEvent;
use crate::metrics::{Collect, Metrics};
use crate::queue::{RateLimiter, WorkQueue};
use crate::reconcile::{
    Caches, ControllerKind, Doors, Gate, KeyParts, Reconciler, Request, Shard, SpanOf, Workers, WorkersConfig,
    default_span,
};
use crate::{Error, ObjectKey};

/// Options of a [`Controller`], which has an example.
///
/// A builder from [`Manager::controller`](super::Manager::controller) belongs to its manager, and ends with
/// [`complete`](ControllerBuilder::complete); other builders end with [`build`](ControllerBuilder::build).
#[must_use = "a builder does nothing until `build` or `complete` is called"]
pub struct ControllerBuilder<M = (), R: RequestKey = ObjectKey> {
    pub(super) manager: M,
    name: String,
    pub(super) factory: SharedInformerFactory,
    pub(super) owner_kind: Option<(String, String, bool)>,
    pub(super) watches: Vec<Watch<R>>,
    pub(super) sources: Vec<Source<R>>,
    pub(super) replays: Option<Replays<R>>,
    debounce: Duration,
    filters: Vec<Filter>,
    /// Functions that register with informers how long the controller waits for them.
    pub(super) waits: Vec<Box<dyn Fn(Duration) + Send>>,
    pub(super) caches: Caches,
    metrics: Metrics,
    limiter: Option<Box<dyn RateLimiter<R>>>,
    is_by_priority: bool,
    is_gated: bool,
    workers: WorkersConfig,
    span: Option<SpanOf<R>>,
    cache_sync_timeout: Duration,
    needs_leader_election: bool,
    is_warmed_up: bool,
    sharding: Option<(Sharding, Places<R>)>,
    pub(super) faults: Vec<String>,
}

impl Controller {
    /// Returns a builder for a controller with this name, with the informers of a factory.
    pub fn builder(name: &str, factory: &SharedInformerFactory) -> ControllerBuilder {
        ControllerBuilder::new(name, factory)
    }
}

impl ControllerBuilder {
    /// Returns a builder for a controller with this name, which its metrics and messages contain; its informers are the
    /// factory's.
    pub fn new(name: &str, factory: &SharedInformerFactory) -> Self {
        Self::with((), name, factory)
    }
}

impl<M> ControllerBuilder<M> {
    /// Reconciles keys of another type instead of object keys (controller-runtime's `TypedBuilder`). Later watches must
    /// map their events to such keys. The controller has the default rate limiter.
    ///
    /// ```
    /// use informer::handler::enqueue;
    /// use informer::reconcile::{Action, ReconcileError, Request};
    /// use informer::runtime::Manager;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// # fn add(manager: &Manager) -> Result<(), informer::Error> {
    /// // One request for all Pods of a node.
    /// let node = enqueue::mapped(|pod: &informer::CachedObject<Pod>| {
    ///     let spec = pod.typed().ok().and_then(|it| it.spec.clone());
    ///     spec.and_then(|it| it.node_name)
    /// });
    /// let nodes = manager.controller("nodes").keyed_by::<String>().watches::<Pod>(node);
    /// nodes.complete(|request: Request<String>| async move {
    ///     println!("node {}", request.key);
    ///     Ok::<_, ReconcileError>(Action::await_change())
    /// })
    /// # }
    /// ```
    pub fn keyed_by<R: RequestKey>(self) -> ControllerBuilder<M, R> {
        let mut faults = self.faults;
        if !self.watches.is_empty() || !self.sources.is_empty() {
            faults.push("`keyed_by` must precede all watches".to_owned());
        }
        if self.sharding.is_some() {
            faults.push("`keyed_by` comes after `sharded`".to_owned());
        }
        ControllerBuilder {
            filters: self.filters,
            debounce: self.debounce,
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
            replays: None,
            debounce: Duration::ZERO,
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
            span: None,
            cache_sync_timeout: CACHE_SYNC_TIMEOUT,
            needs_leader_election: true,
            is_warmed_up: false,
            sharding: None,
            faults: Vec::new(),
        }
    }

    /// Adds a filter for events of all types (controller-runtime's `WithEventFilter`). It applies to all watches,
    /// including earlier ones.
    pub fn with_event_filter(mut self, filter: impl Fn(&AnyEvent<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.filters.push(Arc::new(filter));
        self
    }

    /// Sets the maximum number of keys that are reconciled concurrently. Default 1.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.workers.concurrency = concurrency;
        self
    }

    /// Sets the delay of a key after its first event; further events in the meantime cause no additional reconcile, and
    /// do not prolong the delay. Each change is delayed by it. Default: zero. It does not apply to keys of a
    /// [`source`](Self::source), or to keys that a reconcile requeues.
    pub fn debounce(mut self, debounce: Duration) -> Self {
        self.debounce = debounce;
        self
    }

    /// Sets the rate limiter of failed keys. Default: 5 ms, doubled by each failure of a key up to 1,000 s; with
    /// [`first_come_first_served`](Self::first_come_first_served) also 10 per second for all keys together.
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<R> + 'static) -> Self {
        self.limiter = Some(Box::new(limiter));
        self
    }

    /// Sets the function that creates the `tracing` span of each reconcile (controller-runtime's `LogConstructor`). Log
    /// lines, panics and further spans of the reconciler are within it.
    ///
    /// Default: a root span `reconcile` of level ERROR and target `informer::reconcile` with the fields `controller`,
    /// `group` and `kind` of the type the controller is for, `namespace` and `name` of the object (`cluster` of one of
    /// several clusters, `key` instead of them for a key of another type), `reconcile_id` and `attempt`. The number of
    /// the attempt is 1 after a success. A panic of the function is logged, and its reconcile runs without a span.
    ///
    /// ```
    /// use informer::reconcile::Request;
    /// use informer::runtime::Manager;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// # fn add(manager: &Manager) {
    /// let pods = manager.controller("pods").for_::<Pod>();
    /// let pods = pods.span(|request: &Request| tracing::info_span!("pod", key = %request.key, id = request.id));
    /// # }
    /// ```
    pub fn span(mut self, span: impl Fn(&Request<R>) -> tracing::Span + Send + Sync + 'static) -> Self {
        self.span = Some(Box::new(span));
        self
    }

    /// Disables priorities. With priorities, the default, changes precede the objects of a new list or a resync.
    pub fn first_come_first_served(mut self) -> Self {
        self.is_by_priority = false;
        self
    }

    /// Reconciles keys even if the caches have not received the last writes for them.
    ///
    /// By default, a key is held back until the caches of the controller have received all writes of its last reconcile
    /// to their objects by an observed client: [`Manager::client`](super::Manager::client), or one created with
    /// [`Writes::observe`](crate::reconcile::Writes::observe). A key that is held for more than 150 s fails with an
    /// error that names the missing write, and is reconciled at its next turn, so that a stale cache does not block a
    /// key.
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

    /// Makes a panic of a reconcile end the controller. By default it is an error of its key.
    pub fn propagate_panics(mut self) -> Self {
        self.workers.recovers_panics = false;
        self
    }

    /// Runs the controller on every process. By default only the leader runs it.
    pub fn without_leader_election(mut self) -> Self {
        self.needs_leader_election = false;
        self
    }

    /// Fills its queue before this process leads, so that work begins at once then (controller-runtime's
    /// `EnableWarmup`).
    pub fn warm_up(mut self) -> Self {
        self.is_warmed_up = true;
        self
    }

    /// Shares its keys with other replicas: this one reconciles its share, and every replica runs the controller,
    /// regardless of leadership. The text of a key determines its replica. A [`source`](Self::source) must send its
    /// keys to all replicas, because keys that only one of them receives are lost if they belong to another.
    pub fn sharded(mut self, sharding: &Sharding) -> Self
    where
        R: fmt::Display,
    {
        self.sharding = Some((sharding.clone(), Places::of_texts()));
        self.needs_leader_election = false;
        self
    }

    /// Sets the registry for its metrics. Default: no metrics, or the manager's registry.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// The controller.
    ///
    /// # Errors
    ///
    /// If the controller watches nothing, `for_` is called twice, or `owns` precedes it.
    pub fn build(self, reconciler: impl Reconciler<R>) -> Result<Controller<R>, Error> {
        let mut faults = self.faults;
        if self.watches.is_empty() && self.sources.is_empty() {
            faults.push("the controller has nothing to watch: `for_`, `watches` or `source` is missing".to_owned());
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
        let panics = Arc::new(EventPanics::new(&self.name));
        let collector: Arc<dyn Collect> = panics.clone();
        self.metrics.register(&collector);
        let stopping = Arc::clone(&self.workers.stop);
        let gate = self.is_gated.then(|| Arc::new(Gate::new(self.caches)));
        let shard = self.sharding.map(|(sharding, places)| sharding.keys(places, &queue));
        let doors = Doors {
            gate: gate.clone(),
            shard: shard.clone().map(|it| it as Arc<dyn Shard<R>>),
        };
        let kind = match self.owner_kind {
            Some((group, kind, _)) => ControllerKind {
                group: Some(group),
                kind: Some(kind),
            },
            None => ControllerKind::default(),
        };
        let span = self.span.unwrap_or_else(|| default_span(&self.name, kind, parts_of));
        let workers = Workers::new(queue.clone(), reconciler, self.workers, span, doors, &self.metrics);
        Ok(Controller::new(Parts {
            name: self.name,
            factory: self.factory,
            intake: Intake {
                queue,
                filters: self.filters.into(),
                shard,
                replays: self.replays,
                debounce: self.debounce,
                panics,
            },
            watches: self.watches,
            sources: self.sources,
            gate,
            workers: Box::pin(workers.run()),
            later: Later::default(),
            stopping,
            cache_sync_timeout: self.cache_sync_timeout,
            needs_leader_election: self.needs_leader_election,
            is_warmed_up: self.is_warmed_up,
        }))
    }
}

/// Returns the object that a key names; empty for a key of a custom type.
fn parts_of(key: &dyn Any) -> KeyParts<'_> {
    match key.downcast_ref::<ClusterKey>() {
        Some(key) => KeyParts {
            cluster: Some(&key.cluster),
            object: Some(&key.key),
        },
        None => KeyParts {
            cluster: None,
            object: key.downcast_ref(),
        },
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
