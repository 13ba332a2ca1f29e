//! `ControllerBuilder`: configures the watches of a controller, the keys that they enqueue, and the workers.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::cluster_key::ClusterKey;
use super::controller::{Controller, Ending, Parts};
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

/// Builder of a [`Controller`]. Its documentation contains an example.
///
/// Builders from [`Manager::controller`](super::Manager::controller) add the controller to the manager with
/// [`complete`](ControllerBuilder::complete). Other builders return it from [`build`](ControllerBuilder::build).
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
    /// Functions that inform the watched informers how long the controller waits for them to sync.
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
    /// Returns a builder for a controller with this name that uses the informers of `factory`.
    pub fn builder(name: &str, factory: &SharedInformerFactory) -> ControllerBuilder {
        ControllerBuilder::new(name, factory)
    }
}

impl ControllerBuilder {
    /// Creates a builder for a controller that uses the informers of `factory`. The name is used in metrics and
    /// messages.
    pub fn new(name: &str, factory: &SharedInformerFactory) -> Self {
        Self::with((), name, factory)
    }
}

impl<M> ControllerBuilder<M> {
    /// Changes the type of the keys (controller-runtime's `TypedBuilder`). All watches that are added afterwards must
    /// map events to keys of this type. Must be called before any watch or source is added, and before
    /// [`sharded`](Self::sharded). Resets the rate limiter and the span to their defaults.
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
            faults.push("`keyed_by` must precede `sharded`".to_owned());
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

    /// Adds a filter for events of all types (controller-runtime's `WithEventFilter`). Applies to all watches,
    /// including watches that have already been added.
    pub fn with_event_filter(mut self, filter: impl Fn(&AnyEvent<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.filters.push(Arc::new(filter));
        self
    }

    /// Sets the maximum number of keys that are reconciled concurrently. Default: 1.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.workers.concurrency = concurrency;
        self
    }

    /// Delays each key after an event. Further events for the key during this time do not cause additional reconciles,
    /// and do not extend the delay. Does not apply to keys from a [`source`](Self::source) or to requeued keys.
    /// Default: zero.
    pub fn debounce(mut self, debounce: Duration) -> Self {
        self.debounce = debounce;
        self
    }

    /// Sets the rate limiter for failed keys. Default: a delay of 5 ms that doubles with each failure of a key, up to
    /// 1,000 s; with [`first_come_first_served`](Self::first_come_first_served) also a limit of 10 per second for all
    /// keys.
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<R> + 'static) -> Self {
        self.limiter = Some(Box::new(limiter));
        self
    }

    /// Sets the function that creates the `tracing` span of each reconcile (controller-runtime's `LogConstructor`). Log
    /// lines, panics and inner spans of the reconciler are within this span.
    ///
    /// Default: a root span `reconcile` of level ERROR and target `informer::reconcile`. Its fields are `controller`,
    /// `group` and `kind` of the reconciled type, `namespace` and `name` of the object (also `cluster` in a controller
    /// for several clusters, or only `key` for custom key types), `reconcile_id`, and `attempt`, which is 1 for the
    /// first reconcile after a success. If the function panics, the panic is logged, and the reconcile runs without a
    /// span.
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

    /// Disables priorities. By default, keys of changed objects are reconciled before keys from an initial list or a
    /// resync.
    pub fn first_come_first_served(mut self) -> Self {
        self.is_by_priority = false;
        self
    }

    /// Reconciles keys without waiting until the caches have received the writes of the last reconcile.
    ///
    /// By default, a key is held back until all caches that this controller watches have received the writes of its
    /// last reconcile to their types. Caches that the reconciler only reads, such as the cache of a
    /// [`Manager::lister`](super::Manager::lister), do not count. This applies to writes through an observed client,
    /// such as [`Manager::client`](super::Manager::client) or a client from
    /// [`Writes::observe`](crate::reconcile::Writes::observe). If a key is held back for more than 150 s, it fails with
    /// an error that describes the missing write, and is reconciled at its next retry, so that a stale cache does not
    /// block the key forever.
    pub fn without_read_your_writes(mut self) -> Self {
        self.is_gated = false;
        self
    }

    /// Sets a time limit for each reconcile. When it expires, the future is dropped, and the reconcile fails. Default:
    /// no limit.
    pub fn reconcile_timeout(mut self, timeout: Duration) -> Self {
        self.workers.timeout = Some(timeout);
        self
    }

    /// Sets the time limit for caches to sync. When it expires, the controller and its manager fail. Default: 2
    /// minutes.
    pub fn cache_sync_timeout(mut self, timeout: Duration) -> Self {
        self.cache_sync_timeout = timeout;
        self
    }

    /// Ends the controller if a reconcile panics. By default, a panic only fails the reconcile of the key.
    pub fn propagate_panics(mut self) -> Self {
        self.workers.recovers_panics = false;
        self
    }

    /// Runs the controller in every process. By default, it only runs in the leader.
    pub fn without_leader_election(mut self) -> Self {
        self.needs_leader_election = false;
        self
    }

    /// Fills the queue before this process becomes the leader, so that the leader can start reconciling immediately
    /// (controller-runtime's `EnableWarmup`).
    pub fn warm_up(mut self) -> Self {
        self.is_warmed_up = true;
        self
    }

    /// Divides the keys of the controller among replicas: every replica runs the controller, regardless of leader
    /// election, and reconciles the keys that it owns. The owner is determined from the string form of the key. A
    /// [`source`](Self::source) must send its keys to all replicas, because a key is lost if only a replica that does
    /// not own the key receives it.
    pub fn sharded(mut self, sharding: &Sharding) -> Self
    where
        R: fmt::Display,
    {
        self.sharding = Some((sharding.clone(), Places::of_texts()));
        self.needs_leader_election = false;
        self
    }

    /// Sets the registry for the controller's metrics. Default: the manager's registry, or no metrics.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Builds the controller.
    ///
    /// # Errors
    ///
    /// Fails if the controller has neither watches nor sources, or if methods were called in the wrong order: `for_`
    /// twice, `owns` before `for_`, or `keyed_by` after a watch or source was added.
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
        let later = Later::default();
        Ok(Controller::new(Parts {
            name: self.name,
            factory: self.factory,
            ending: Ending {
                later: later.clone(),
                queue: queue.clone(),
            },
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
            later,
            stopping,
            cache_sync_timeout: self.cache_sync_timeout,
            needs_leader_election: self.needs_leader_election,
            is_warmed_up: self.is_warmed_up,
        }))
    }
}

/// Returns the cluster and the object that a key identifies. Both are `None` for custom key types.
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
