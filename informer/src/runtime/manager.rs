//! `Manager`: starts and stops the components of a process in order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, MutexGuard, PoisonError};
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
use crate::sync::Mutex;
use crate::{Cacheable, Clock, Error, spans};

/// Runs the controllers and other components of a process (controller-runtime's `Manager`). Clones refer to the same
/// manager.
///
/// It starts the groups `Base` and `Server`, then caches, then the runnables of the group `Always`, and, once this
/// process is the leader, the runnables of the group `Leader`. The caches of standby processes are therefore up to
/// date. On shutdown, it stops the groups `Always` and `Leader`, the caches, and the groups `Server` and `Base`, in
/// this order, and finally releases the lease.
///
/// Some of these steps wait for caches to sync. The group `Always` starts once the caches that no controller watches
/// have synced, and the leader election starts once the caches with a lister have synced. The manager fails if one of
/// these caches takes longer than two minutes, or, if controllers watch the cache, longer than the shortest
/// [`cache_sync_timeout`](super::ControllerBuilder::cache_sync_timeout) of these controllers. Only the controllers that
/// use the other caches wait for them. Runnables of the group `Always` can therefore install the CRDs that controllers
/// need.
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
    /// Cancelled when the manager starts.
    started: CancellationToken,
    factory: SharedInformerFactory,
    metrics: Metrics,
    clock: Clock,
    endpoints: Endpoints,
    elector: Option<LeaderElector>,
    elected: CancellationToken,
    grace: Option<Duration>,
    /// Guards the runnables and recorders.
    state: Mutex<State>,
}

struct State {
    names: BTreeSet<String>,
    recorders: BTreeMap<String, EventRecorder>,
    phase: Phase,
}

enum Phase {
    /// The manager has not started; contains the runnables that were added.
    New(Vec<Box<dyn Runnable>>),
    /// The manager is running, and receives further runnables from this channel.
    Running(mpsc::UnboundedSender<Box<dyn Runnable>>),
    Stopped,
}

impl State {
    fn add(&mut self, runnable: impl Runnable) -> Result<(), Error> {
        let name = runnable.name();
        if self.names.contains(&name) {
            return Err(Error::refused(format!(
                "manager: a runnable with the name {name:?} already exists"
            )));
        }
        let refused = || {
            Error::refused(format!(
                "manager: {name:?} cannot be added because the manager has stopped"
            ))
        };
        match &mut self.phase {
            Phase::New(runnables) => runnables.push(Box::new(runnable)),
            Phase::Running(added) => added.send(Box::new(runnable)).map_err(|_| refused())?,
            Phase::Stopped => return Err(refused()),
        }
        self.names.insert(name);
        Ok(())
    }
}

/// Builder of a [`Manager`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct ManagerBuilder {
    client: Client,
    factory: Option<SharedInformerFactory>,
    cache: Option<SharedInformerFactoryBuilder>,
    /// Set if the client's requests are already counted in metrics.
    is_counted: bool,
    metrics: Metrics,
    clock: Clock,
    election: Option<(LeaseLock, LeaderElectionConfig)>,
    grace: Option<Duration>,
    seed: u64,
}

impl ManagerBuilder {
    /// Enables leader election: only one of several processes runs the controllers at a time. Default: disabled, which
    /// means that this process always runs the controllers.
    pub fn leader_election(mut self, lock: LeaseLock, config: LeaderElectionConfig) -> Self {
        self.election = Some((lock, config));
        self
    }

    /// Sets the seed of jitter in informers, and in leader election if its options do not set a seed; see
    /// [`ReflectorOptions::seed`](crate::cache::ReflectorOptions::seed). Default: 0, which selects a random seed; with
    /// leader election, informers then use a seed derived from the identity. Does not affect the factory set with
    /// [`factory`](Self::factory).
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the informer factory. Default: a factory for all namespaces.
    pub fn factory(mut self, factory: SharedInformerFactory) -> Self {
        self.factory = Some(factory);
        self
    }

    /// Configures the informers, as an alternative to [`factory`](Self::factory). The informers use the manager's seed
    /// unless `change` sets another one, and their requests are included in the manager's metrics.
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
    /// Fails if `change` fails.
    pub fn cache<E>(
        mut self,
        change: impl FnOnce(SharedInformerFactoryBuilder) -> Result<SharedInformerFactoryBuilder, E>,
    ) -> Result<Self, E> {
        self.client = count_requests(&self.client, &self.metrics);
        self.is_counted = true;
        self.cache = Some(change(SharedInformerFactory::builder(self.client.clone()))?);
        Ok(self)
    }

    /// Sets the time limit of the shutdown. When it expires, all tasks are dropped, the lease is released, and `run`
    /// fails with an error that lists the runnables that have not stopped. Default: 30 s; `None` disables the limit.
    pub fn graceful_shutdown_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.grace = timeout;
        self
    }

    /// Sets the clock for times that are written to objects. Default: the system clock. Leader election uses
    /// [`LeaderElectionConfig::clock`] instead.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Builds the manager.
    ///
    /// # Errors
    ///
    /// Fails if the options of the leader election are inconsistent.
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
            // Replicas have different identities, so their seeds differ.
            (Some(elector), 0) => Jitter::seed_of(elector.identity()),
            (_, seed) => seed,
        };
        let factory = match (self.cache, self.factory) {
            (Some(cache), _) => cache.seed_if_unset(seed).build(),
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
    /// Creates a manager with default options: all namespaces, and without leader election.
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

    /// Returns the client that reconcilers should use. Its writes are recorded, so that a key is not reconciled until
    /// the caches that its controller watches contain its previous writes. With leader election, writes are refused
    /// after this process has lost the lease; see [`LeaderElector::fenced`].
    pub fn client(&self) -> Client {
        self.0.client.clone()
    }

    /// Wraps the client of another cluster like [`client`](Self::client), so that its writes are refused after this
    /// process has lost the lease.
    pub(super) fn fenced(&self, client: &Client) -> Client {
        match &self.0.elector {
            Some(elector) => elector.fenced(client),
            None => client.clone(),
        }
    }

    /// Returns a client that reads from the caches and writes to the server (controller-runtime's `GetClient`). Reads
    /// from the caches fail until the manager has started.
    pub fn cached_client(&self) -> CachedClient {
        self.0.cached_client.clone()
    }

    /// Adds an index of the objects of a type by the value of a field, such as `spec.nodeName` (controller-runtime's
    /// `GetFieldIndexer().IndexField`). [`ListRequest::field`](super::ListRequest::field) uses it.
    ///
    /// # Errors
    ///
    /// Fails if an index for this field exists, or the informer has stopped.
    pub fn index_field<K>(&self, path: &str) -> Result<(), Error>
    where
        K: Cacheable + Resource<DynamicType = ()> + Serialize,
        K::Scope: 'static,
    {
        self.0.factory.informer::<K>().add_index(indexes::field(path))
    }

    /// Returns the event recorder with this name, such as `example.com/web-operator` (controller-runtime's
    /// `GetEventRecorder`). Repeated calls return the same recorder. Events are written while the manager runs, with
    /// times from the manager's clock. The reporting instance of the Events is the identity of the leader election;
    /// without leader election, it is `name`.
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
    /// Fails if the manager has stopped and the recorder does not exist yet, or if an
    /// [`EventWriter`](super::EventWriter) with this name was added manually.
    pub fn recorder(&self, name: &str) -> Result<EventRecorder, Error> {
        let mut state = self.state();
        if let Some(recorder) = state.recorders.get(name) {
            return Ok(recorder.clone());
        }
        let instance = self.0.elector.as_ref().map_or(name, LeaderElector::identity);
        let config = RecorderConfig {
            clock: self.0.clock,
            seed: Jitter::seed_of(instance),
            ..RecorderConfig::new(name, instance)
        };
        let (recorder, writer) = EventRecorder::new(self.client(), config);
        state.add(writer)?;
        recorder.register_metrics(&self.0.metrics);
        state.recorders.insert(name.to_owned(), recorder.clone());
        Ok(recorder)
    }

    /// Returns a lister of a type, which reads from the factory's informer. If the manager is already running, the
    /// informer starts immediately; [`Lister::synced`] waits until it has synced. A controller that writes objects of
    /// this type should also watch them, because keys only wait for writes in watched caches.
    pub fn lister<K>(&self) -> Lister<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.0.factory.informer::<K>().lister()
    }

    /// Returns a handle to the dependent objects of a type, which are read from the cache and written with
    /// [`client`](Self::client). The controller should also watch the type; see [`lister`](Self::lister).
    pub fn dependents<K>(&self) -> Dependents<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        Dependents::new(self.client(), self.lister())
    }

    /// Returns the informer factory. Its informers start with the manager; informers that are requested later start
    /// immediately.
    pub fn factory(&self) -> SharedInformerFactory {
        self.0.factory.clone()
    }

    /// Returns the manager's metrics registry.
    pub fn metrics(&self) -> Metrics {
        self.0.metrics.clone()
    }

    /// Returns the clock for times that are written to objects.
    pub fn clock(&self) -> Clock {
        self.0.clock
    }

    /// Returns the endpoints for health, readiness and metrics. The feature `serve` provides an HTTP server for them.
    pub fn endpoints(&self) -> Endpoints {
        self.0.endpoints.clone()
    }

    /// Adds a check to `/healthz`. If it fails, the kubelet usually restarts the process.
    pub fn add_healthz(&self, name: &str, check: impl Check) {
        self.0.endpoints.add_healthz(name, check);
    }

    /// Adds a check to `/readyz`. If it fails, the process usually receives no requests from Services.
    pub fn add_readyz(&self, name: &str, check: impl Check) {
        self.0.endpoints.add_readyz(name, check);
    }

    /// Adds a runnable. If the manager is already running and has started the runnable's group, the runnable starts
    /// immediately.
    ///
    /// # Errors
    ///
    /// Fails if a runnable with the same name was added before, or if the manager has stopped.
    pub fn add(&self, runnable: impl Runnable) -> Result<(), Error> {
        self.state().add(runnable)
    }

    /// Waits until this process is the leader. Without leader election, waits until the manager is about to start the
    /// runnables of the group `Leader`.
    pub async fn elected(&self) {
        self.0.elected.cancelled().await;
    }

    /// Returns `true` if this process is the leader; without leader election, once [`elected`](Self::elected)
    /// completes.
    pub fn is_leader(&self) -> bool {
        match &self.0.elector {
            Some(elector) => elector.is_leader(),
            None => self.0.elected.is_cancelled(),
        }
    }

    /// Runs all components until `shutdown` completes, then stops them.
    ///
    /// # Errors
    ///
    /// Fails if a runnable fails before the shutdown, if caches do not sync in time, if the lease is lost, if the
    /// shutdown takes too long, or if the manager was run before. If the lease is lost, even during the shutdown, drops
    /// all components and returns immediately, because another process may already be the leader. If there are several
    /// errors, returns the first one. Errors of runnables during the shutdown are only logged.
    pub async fn run(&self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        self.run_until(shutdown).instrument(spans::manager()).await
    }

    async fn run_until(&self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let (added, adding) = mpsc::unbounded_channel();
        let runnables = {
            let mut state = self.state();
            let Phase::New(runnables) = &mut state.phase else {
                return Err(Error::refused("manager: the manager has already been run"));
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
            // Another process may already be the leader, so drop everything that is still running.
            return outcome;
        }
        let stopped = match self.0.grace {
            None => {
                engine.stop().await;
                Ok(())
            }
            Some(grace) => timeout(grace, engine.stop()).await.map_err(|_| grace),
        };
        if engine.is_lost {
            let lost = Error::lost_leadership("manager: leader election lost during the shutdown");
            return outcome.and(Err(lost));
        }
        let Err(grace) = stopped else {
            return outcome;
        };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interleave::interleave;

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_receive_the_same_recorder() {
        let never = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, kube::Error>>()
        });
        let client = Client::new(never, "default");
        for seed in 0..50 {
            let manager = Manager::new(client.clone());
            let call = || {
                manager.recorder("web").expect("the manager has not stopped");
            };
            interleave(seed, vec![Box::new(call), Box::new(call)]);
        }
    }
}
