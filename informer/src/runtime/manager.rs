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

use super::client::CachedClient;
use super::controller_builder::ControllerBuilder;
use super::dependents::Dependents;
use super::engine::Engine;
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
use crate::{Cacheable, Clock, Error};

/// Runs controllers and the other parts of a process (controller-runtime's `Manager`). Copies are the same one.
///
/// It starts servers, then the caches, then what always runs, and last, when this process leads, what only the leader
/// runs. A standby has warm caches. It stops in the order `Always`, `Leader`, caches, `Server`, and gives up the lease
/// at the very end.
///
/// It waits for caches, but not for ever: those that no controller watches have to sync before what always runs may
/// start, and those that somebody has a lister of before it stands for election; each within two minutes, or the
/// shortest [`cache_sync_timeout`](ControllerBuilder::cache_sync_timeout) of the controllers that watch it. All others
/// are waited for by their controllers. So what always runs may install the types that controllers are for.
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
pub struct Manager(pub(super) Arc<Inner>);

pub(super) struct Inner {
    client: Client,
    cached_client: CachedClient,
    /// Cancelled when it begins to run.
    started: CancellationToken,
    pub(super) factory: SharedInformerFactory,
    metrics: Metrics,
    clock: Clock,
    endpoints: Endpoints,
    pub(super) elector: Option<LeaderElector>,
    pub(super) elected: CancellationToken,
    grace: Option<Duration>,
    /// Guards what is to be run.
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
    /// Started: a runnable sent here starts at once if its group has.
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
    /// Only one of several processes runs the controllers. Default: this one does.
    pub fn leader_election(mut self, lock: LeaseLock, config: LeaderElectionConfig) -> Self {
        self.election = Some((lock, config));
        self
    }

    /// The seed of the waiting times of informers and of the leader election, where they have none of their own; see
    /// [`ReflectorOptions::seed`](crate::cache::ReflectorOptions::seed). Default 0: a random one, or with leader
    /// election one that the identity determines. It does not change a [factory](Self::factory) that is given.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The informers. Default: a factory of all namespaces.
    pub fn factory(mut self, factory: SharedInformerFactory) -> Self {
        self.factory = Some(factory);
        self
    }

    /// Configures the informers, for all types and for single ones; in the place of a [factory](Self::factory).
    /// Their requests are counted with those of the manager, and their seed is its seed.
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
    /// As `change`.
    pub fn cache<E>(
        mut self,
        change: impl FnOnce(SharedInformerFactoryBuilder) -> Result<SharedInformerFactoryBuilder, E>,
    ) -> Result<Self, E> {
        self.client = count_requests(&self.client, &self.metrics);
        self.is_counted = true;
        self.cache = Some(change(SharedInformerFactory::builder(self.client.clone()))?);
        Ok(self)
    }

    /// Limits the time that everything together may take to stop; then it is dropped, which is an error that names the
    /// runnables still running, and the lease is given up. Default 30 s; `None` for no limit.
    pub fn graceful_shutdown_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.grace = timeout;
        self
    }

    /// The time of day that is written into objects.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The manager.
    ///
    /// # Errors
    ///
    /// If the times of the leader election do not fit together.
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
    /// A manager with all defaults: of all namespaces, without leader election.
    pub fn new(client: Client) -> Self {
        Self::builder(client).with_elector(None)
    }

    /// A manager that may be configured.
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

    /// The client for reconcilers: their writes are seen, so that no key is worked on with a cache older than them.
    /// With leader election they are refused once this process has lost its lease; see [`LeaderElector::fenced`].
    pub fn client(&self) -> Client {
        self.0.client.clone()
    }

    /// The client that reads from the caches and writes to the server (controller-runtime's `GetClient`). It reads once
    /// the manager runs.
    pub fn cached_client(&self) -> CachedClient {
        self.0.cached_client.clone()
    }

    /// Finds objects of a type by the value of a field, such as `spec.nodeName`: adds the index that
    /// [`List::field`](super::List::field) reads (controller-runtime's `GetFieldIndexer().IndexField`).
    ///
    /// # Errors
    ///
    /// If the field has an index already, or the informer has stopped.
    pub fn index_field<K>(&self, path: &str) -> Result<(), Error>
    where
        K: Cacheable + Resource<DynamicType = ()> + Serialize,
        K::Scope: 'static,
    {
        self.0.factory.informer::<K>().add_index(indexes::field(path))
    }

    /// A controller of this manager: with its informers and its metrics, and run by it once it is
    /// [complete](ControllerBuilder::complete).
    pub fn controller(&self, name: &str) -> ControllerBuilder<Self> {
        ControllerBuilder::of_manager(name, self)
    }

    /// The recorder of events of this controller, such as `example.com/web-operator`; the same one each time
    /// (controller-runtime's `GetEventRecorder`). Its events are written while the manager runs, bear the manager's
    /// clock, and name the identity of the leader election as the instance, or `name` where there is none.
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
    /// If it is asked for first after the manager has stopped, or if an
    /// [`EventWriter`](super::EventWriter) of this name was added by hand.
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

    /// Reads the cache of a type: that of its informer in the factory. Where the manager runs already, the informer
    /// starts at once, and [`Lister::synced`] waits for it.
    pub fn lister<K>(&self) -> Lister<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.0.factory.informer::<K>().lister()
    }

    /// The objects of a type that belong to others: read from the cache, written by [`client`](Self::client).
    pub fn dependents<K>(&self) -> Dependents<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        Dependents::new(self.client(), self.lister())
    }

    /// Returns the informer factory. Informers start with the manager, and later ones at once.
    pub fn factory(&self) -> SharedInformerFactory {
        self.0.factory.clone()
    }

    /// Returns the registry of all metrics.
    pub fn metrics(&self) -> Metrics {
        self.0.metrics.clone()
    }

    /// The time of day that is written into objects.
    pub fn clock(&self) -> Clock {
        self.0.clock
    }

    /// Returns the HTTP endpoints: health, readiness, metrics. The feature `serve` has a server for them.
    pub fn endpoints(&self) -> Endpoints {
        self.0.endpoints.clone()
    }

    /// Adds a check to `/healthz`, which decides about a restart of the process.
    pub fn add_healthz(&self, name: &str, check: impl Check) {
        self.0.endpoints.add_healthz(name, check);
    }

    /// Adds a check to `/readyz`: whether the process is ready for requests.
    pub fn add_readyz(&self, name: &str, check: impl Check) {
        self.0.endpoints.add_readyz(name, check);
    }

    /// Adds something to be run. While the manager runs, it starts at once if its group has started.
    ///
    /// # Errors
    ///
    /// If something has its name already, and after the manager has stopped.
    pub fn add(&self, runnable: impl Runnable) -> Result<(), Error> {
        let name = runnable.name();
        let mut state = self.state();
        if state.names.contains(&name) {
            return Err(Error::refused(format!("manager: something is called {name:?} already")));
        }
        let refused = || Error::refused(format!("manager: {name:?} comes too late, it has stopped"));
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
    /// If something that it runs fails (the first error counts), the lease is lost (then nothing is waited for), it
    /// does not stop in time, or it was run before.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let (added, adding) = mpsc::unbounded_channel();
        let runnables = {
            let mut state = self.state();
            let Phase::New(runnables) = &mut state.phase else {
                return Err(Error::refused("manager: it was run before"));
            };
            let runnables = std::mem::take(runnables);
            state.phase = Phase::Running(added);
            runnables
        };
        self.0.started.cancel();
        let mut engine = Engine::new(self, adding);
        let outcome = {
            let shutdown = std::pin::pin!(shutdown);
            match select(shutdown, std::pin::pin!(engine.run(runnables))).await {
                Either::Left(((), _)) => Ok(()),
                Either::Right((result, _)) => result,
            }
        };
        self.state().phase = Phase::Stopped;
        if engine.is_lost {
            // Another process may lead by now: everything that still runs is dropped.
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
        let why = format!("manager: not everything has stopped within {grace:?}: {late}");
        outcome.and(Err(Error::refused(why)))
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
