//! `Manager`: starts the parts of a process in order, and stops them in order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use kube::{Client, Resource};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::client::CachedClient;
use super::dependents::Dependents;
use super::engine::{Engine, EngineParts};
use super::health::{Check, Endpoints};
use super::leader_election::{LeaderElectionConfig, LeaderElector};
use super::lease_lock::LeaseLock;
use super::recorder::{EventRecorder, RecorderConfig};
use super::request_metrics::count_requests;
use super::runnable::Runnable;
use crate::cache::{Lister, SharedInformerFactory, SharedInformerFactoryBuilder, indexes};
use crate::jitter::Jitter;
use crate::metrics::Metrics;
use crate::reconcile::Writes;
use crate::{Cacheable, Clock, Error, spans};

/// Runs the controllers and other parts of a process (controller-runtime's `Manager`). Clones are the same manager.
///
/// It starts servers, then the caches, then the runnables of the group `Always`, and finally, when this process leads,
/// the group `Leader`. As a result, a standby has warm caches. It stops `Always`, `Leader`, the caches and `Server` in
/// this order, and releases the lease last.
///
/// Some starts wait for caches, with a limit. Caches that no controller watches must sync before the group `Always`
/// starts, and caches with a lister must sync before the process stands for election. Both waits end with an error
/// after two minutes, or after the shortest [`cache_sync_timeout`](super::ControllerBuilder::cache_sync_timeout) of the
/// controllers that watch the cache. All other caches are awaited by their controllers. As a result, runnables of the
/// group `Always` may install the types that controllers depend on.
///
/// ```
/// use informer::reconcile::{Action, ReconcileError, Request};
/// use informer::runtime::{LeaderElectionConfig, LeaseLock, Manager};
/// use k8s_openapi::api::core::v1::Pod;
///
/// # async fn run(client: kube::Client, shutdown: impl Future<Output = ()>) -> Result<(), informer::Error> {
/// let manager = Manager::builder(client.clone())
///     .leader_election(LeaseLock::new(client, "shop", "watcher"), LeaderElectionConfig::new("pod-0"))
///     .build()?;
/// manager.controller("pods").for_::<Pod>().complete(|request: Request| async move {
///     println!("{}", request.key);
///     Ok::<_, ReconcileError>(Action::await_change())
/// })?;
/// manager.run(shutdown).await
/// # }
/// ```
#[derive(Clone)]
pub struct Manager(Arc<Inner>);

struct Inner {
    client: Client,
    cached_client: CachedClient,
    /// Cancelled when the manager begins to run.
    started: CancellationToken,
    factory: SharedInformerFactory,
    metrics: Metrics,
    clock: Clock,
    endpoints: Endpoints,
    elector: Option<LeaderElector>,
    elected: CancellationToken,
    grace: Option<Duration>,
    /// Guards the runnables.
    state: Mutex<State>,
}

struct State {
    names: BTreeSet<String>,
    recorders: BTreeMap<String, EventRecorder>,
    phase: Phase,
}

enum Phase {
    /// Not started: the runnables added so far.
    New(Vec<Box<dyn Runnable>>),
    /// Started: a runnable sent here starts at once if its group has started.
    Running(mpsc::UnboundedSender<Box<dyn Runnable>>),
    Stopped,
}

/// Options of a [`Manager`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct ManagerBuilder {
    client: Client,
    factory: Option<SharedInformerFactory>,
    cache: Option<SharedInformerFactoryBuilder>,
    /// Set once requests of the client are counted.
    is_counted: bool,
    metrics: Metrics,
    clock: Clock,
    election: Option<(LeaseLock, LeaderElectionConfig)>,
    grace: Option<Duration>,
    seed: u64,
}

impl ManagerBuilder {
    /// Enables leader election: only one of several processes runs the controllers. Default: disabled; this process
    /// runs them.
    pub fn leader_election(mut self, lock: LeaseLock, config: LeaderElectionConfig) -> Self {
        self.election = Some((lock, config));
        self
    }

    /// Sets the seed of the waits of informers and of the leader election, unless they have their own seed; see
    /// [`ReflectorOptions::seed`](crate::cache::ReflectorOptions::seed). Default: 0, which is a random seed, or with
    /// leader election one derived from the identity. It does not change a given [factory](Self::factory).
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the informer factory. Default: a factory of all namespaces.
    pub fn factory(mut self, factory: SharedInformerFactory) -> Self {
        self.factory = Some(factory);
        self
    }

    /// Configures the informers, for all types and for single ones, as an alternative to [`factory`](Self::factory).
    /// Their requests are counted with the manager's, and they use the manager's seed.
    ///
    /// ```
    /// use informer::Storage;
    /// use informer::cache::{ByObject, indexes};
    /// use informer::runtime::Manager;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// # fn manager(client: kube::Client) -> Result<Manager, informer::Error> {
    /// let pods = ByObject::<Pod>::new()
    ///     .namespace("shop")
    ///     .source(|pods| pods.labels("app=web"))
    ///     .informer(|pods| pods.storage(Storage::Typed).index(indexes::field("spec.nodeName")));
    /// let manager = Manager::builder(client).cache(|cache| cache.strip_managed_fields().by_object(pods))?;
    /// manager.build()
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Any error of `change`.
    pub fn cache<E>(
        mut self,
        change: impl FnOnce(SharedInformerFactoryBuilder) -> Result<SharedInformerFactoryBuilder, E>,
    ) -> Result<Self, E> {
        self.client = count_requests(&self.client, &self.metrics);
        self.is_counted = true;
        self.cache = Some(change(SharedInformerFactory::builder(self.client.clone()))?);
        Ok(self)
    }

    /// Sets the maximum time of the shutdown. After it, all tasks are dropped, `run` fails with the names of the
    /// runnables that were still running, and the lease is released. Default: 30 s; `None` disables the limit.
    pub fn graceful_shutdown_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.grace = timeout;
        self
    }

    /// Sets the clock for times written into objects.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Builds the manager.
    ///
    /// # Errors
    ///
    /// If the times of the leader election are inconsistent.
    pub fn build(self) -> Result<Manager, Error> {
        let elector = match &self.election {
            Some((lock, config)) => {
                let mut config = config.clone();
                if config.seed == 0 {
                    config.seed = self.seed;
                }
                Some(LeaderElector::new(lock.clone(), config)?)
            }
            None => None,
        };
        Ok(self.with_elector(elector))
    }

    fn with_elector(mut self, elector: Option<LeaderElector>) -> Manager {
        if !self.is_counted {
            self.client = count_requests(&self.client, &self.metrics);
        }
        let client = match &elector {
            Some(elector) => elector.fenced(&self.client),
            None => self.client.clone(),
        };
        let client = Writes::new().observe(&client);
        let seed = match (&elector, self.seed) {
            // Each replica has its own identity.
            (Some(elector), 0) => Jitter::seed_of(elector.identity()),
            (_, seed) => seed,
        };
        let factory = match (self.cache, self.factory) {
            (Some(cache), _) => cache.seed(seed).build(),
            (None, Some(factory)) => factory,
            (None, None) => SharedInformerFactory::builder(self.client).seed(seed).build(),
        };
        factory.register_metrics(&self.metrics);
        let endpoints = Endpoints::new(&self.metrics);
        let caches = factory.clone();
        endpoints.add_readyz("informers", move || Ok(caches.check()?));
        if let Some(elector) = &elector {
            elector.register_metrics(&self.metrics);
            let elector = elector.clone();
            let tolerance = Duration::from_secs(20);
            endpoints.add_healthz("leaderElection", move || Ok(elector.check(tolerance)?));
        }
        let started = CancellationToken::new();
        Manager(Arc::new(Inner {
            cached_client: CachedClient::of_manager(client.clone(), &factory, started.clone()),
            started,
            factory,
            client,
            metrics: self.metrics,
            clock: self.clock,
            endpoints,
            elector,
            elected: CancellationToken::new(),
            grace: self.grace,
            state: Mutex::new(State {
                names: BTreeSet::new(),
                recorders: BTreeMap::new(),
                phase: Phase::New(Vec::new()),
            }),
        }))
    }
}

impl Manager {
    /// Creates a manager with all defaults: all namespaces, without leader election.
    pub fn new(client: Client) -> Self {
        Self::builder(client).with_elector(None)
    }

    /// Returns a builder for a manager.
    pub fn builder(client: Client) -> ManagerBuilder {
        ManagerBuilder {
            client,
            factory: None,
            cache: None,
            is_counted: false,
            metrics: Metrics::new(),
            clock: Clock::system(),
            election: None,
            grace: Some(Duration::from_secs(30)),
            seed: 0,
        }
    }

    /// Returns the client for reconcilers. Its writes are tracked, so that a key is not reconciled with a cache older
    /// than them. With leader election, writes are refused after this process has lost its lease; see
    /// [`LeaderElector::fenced`].
    pub fn client(&self) -> Client {
        self.0.client.clone()
    }

    /// Returns a client that reads from the caches and writes to the server (controller-runtime's `GetClient`). Reads
    /// require that the manager runs.
    pub fn cached_client(&self) -> CachedClient {
        self.0.cached_client.clone()
    }

    /// Adds an index for finding objects of a type by the value of a field, such as `spec.nodeName`.
    /// [`ListRequest::field`](super::ListRequest::field) uses it (controller-runtime's `GetFieldIndexer().IndexField`).
    ///
    /// # Errors
    ///
    /// If the field already has an index, or the informer has stopped.
    pub fn index_field<K>(&self, path: &str) -> Result<(), Error>
    where
        K: Cacheable + Resource<DynamicType = ()> + Serialize,
        K::Scope: 'static,
    {
        self.0.factory.informer::<K>().add_index(indexes::field(path))
    }

    /// Returns the event recorder of a controller, such as `example.com/web-operator`; repeated calls return the same
    /// recorder (controller-runtime's `GetEventRecorder`). Events are written while the manager runs. Their times are
    /// from the manager's clock, and their instance is the identity of the leader election, or `name` without leader
    /// election.
    ///
    /// ```
    /// use informer::runtime::{Manager, Note};
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// # fn record(manager: &Manager, pod: &Pod) -> Result<(), informer::Error> {
    /// let recorder = manager.recorder("example.com/web")?;
    /// recorder.record(pod, Note::normal("Created", "CreatePod", "it is there"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the first call for this name follows the stop of the manager, or if an [`EventWriter`](super::EventWriter)
    /// with this name was added by hand.
    pub fn recorder(&self, name: &str) -> Result<EventRecorder, Error> {
        if let Some(recorder) = self.state().recorders.get(name) {
            return Ok(recorder.clone());
        }
        let instance = self.0.elector.as_ref().map_or(name, LeaderElector::identity);
        let config = RecorderConfig {
            clock: self.0.clock,
            seed: Jitter::seed_of(instance),
            ..RecorderConfig::new(name, instance)
        };
        let (recorder, writer) = EventRecorder::new(self.client(), config);
        self.add(writer)?;
        recorder.register_metrics(&self.0.metrics);
        self.state().recorders.insert(name.to_owned(), recorder.clone());
        Ok(recorder)
    }

    /// Returns the lister of a type, which reads the cache of the factory's informer. If the manager already runs, the
    /// informer starts at once; [`Lister::synced`] waits for it.
    pub fn lister<K>(&self) -> Lister<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.0.factory.informer::<K>().lister()
    }

    /// Returns the dependent objects of a type: read from the cache, written by [`client`](Self::client).
    pub fn dependents<K>(&self) -> Dependents<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        Dependents::new(self.client(), self.lister())
    }

    /// Returns the informer factory. Informers start with the manager; informers added later start at once.
    pub fn factory(&self) -> SharedInformerFactory {
        self.0.factory.clone()
    }

    /// Returns the registry of all metrics.
    pub fn metrics(&self) -> Metrics {
        self.0.metrics.clone()
    }

    /// Returns the clock for times written into objects.
    pub fn clock(&self) -> Clock {
        self.0.clock
    }

    /// Returns the HTTP endpoints: health, readiness, metrics. The feature `serve` contains a server for them.
    pub fn endpoints(&self) -> Endpoints {
        self.0.endpoints.clone()
    }

    /// Adds a check to `/healthz`, which determines restarts of the process.
    pub fn add_healthz(&self, name: &str, check: impl Check) {
        self.0.endpoints.add_healthz(name, check);
    }

    /// Adds a check to `/readyz`, which determines whether the process receives requests.
    pub fn add_readyz(&self, name: &str, check: impl Check) {
        self.0.endpoints.add_readyz(name, check);
    }

    /// Adds a runnable. While the manager runs, it starts at once if its group has started.
    ///
    /// # Errors
    ///
    /// If a runnable with the same name exists, or after the manager has stopped.
    pub fn add(&self, runnable: impl Runnable) -> Result<(), Error> {
        let name = runnable.name();
        let mut state = self.state();
        if state.names.contains(&name) {
            return Err(Error::refused(format!("manager: there is already a runnable {name:?}")));
        }
        let refused = || Error::refused(format!("manager: {name:?} was added after the manager has stopped"));
        match &mut state.phase {
            Phase::New(runnables) => runnables.push(Box::new(runnable)),
            Phase::Running(added) => added.send(Box::new(runnable)).map_err(|_| refused())?,
            Phase::Stopped => return Err(refused()),
        }
        state.names.insert(name);
        Ok(())
    }

    /// Returns when this process leads; without leader election, when everything has started.
    pub async fn elected(&self) {
        self.0.elected.cancelled().await;
    }

    /// Returns `true` if this process leads.
    pub fn is_leader(&self) -> bool {
        match &self.0.elector {
            Some(elector) => elector.is_leader(),
            None => self.0.elected.is_cancelled(),
        }
    }

    /// Runs everything until `shutdown` is ready, then stops it.
    ///
    /// # Errors
    ///
    /// If a runnable fails (the first error counts), if the lease is lost (in which case it does not wait for
    /// anything), if the shutdown takes too long, or if the manager was run before.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        self.run_until(shutdown).instrument(spans::manager()).await
    }

    async fn run_until(&self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let (added, adding) = mpsc::unbounded_channel();
        let runnables = {
            let mut state = self.state();
            let Phase::New(runnables) = &mut state.phase else {
                return Err(Error::refused("manager: it was already run"));
            };
            let runnables = std::mem::take(runnables);
            state.phase = Phase::Running(added);
            runnables
        };
        self.0.started.cancel();
        let mut engine = Engine::new(self.engine_parts(), adding);
        let outcome = {
            let shutdown = std::pin::pin!(shutdown);
            match select(shutdown, std::pin::pin!(engine.run(runnables))).await {
                Either::Left(((), _)) => Ok(()),
                Either::Right((result, _)) => result,
            }
        };
        self.state().phase = Phase::Stopped;
        if engine.is_lost {
            // Another process may already lead, so everything that still runs is dropped.
            return outcome;
        }
        let Some(grace) = self.0.grace else {
            engine.stop().await;
            return outcome;
        };
        if timeout(grace, engine.stop()).await.is_ok() {
            return outcome;
        }
        let late = engine.abandon().await.join(", ");
        let why = format!("manager: these runnables have not stopped within {grace:?}: {late}");
        outcome.and(Err(Error::refused(why)))
    }

    fn engine_parts(&self) -> EngineParts {
        EngineParts {
            factory: self.0.factory.clone(),
            elector: self.0.elector.clone(),
            elected: self.0.elected.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("names", &self.state().names)
            .field("is_leader", &self.is_leader())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerBuilder")
            .field("election", &self.election)
            .field("grace", &self.grace)
            .finish_non_exhaustive()
    }
}
