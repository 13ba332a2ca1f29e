//! `Clusters`: several clusters under one manager (like `sigs.k8s.io/multicluster-runtime`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, FutureExt, join_all};
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::client::CachedClient;
use super::manager::Manager;
use super::runnable::{Runnable, RunnableGroup};
use crate::Error;
use crate::cache::SharedInformerFactory;
use crate::reconcile::{BoxError, ClusterId, Writes};

/// Additional clusters of a manager (multicluster-runtime's manager and provider). Clones share the set of clusters.
///
/// Clusters can be engaged and disengaged while the manager runs. A controller of several clusters reconciles keys of
/// type [`ClusterKey`](super::ClusterKey), with one queue and one concurrency limit for all clusters. Keys of a cluster
/// are reconciled once all caches of the controller in this cluster have synced; unreachable clusters do not delay
/// other clusters. After a reconcile has written to a cluster with a client of its [`Cluster`], its key is not
/// reconciled again until the controller's caches in that cluster have received the writes. Leader election uses the
/// manager's own cluster.
///
/// ```
/// use informer::reconcile::{Action, ReconcileError, Request};
/// use informer::runtime::{ClusterKey, Clusters, Manager};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use testkit::{TestCluster, objects::config_map};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), informer::Error> {
/// // Several servers on one clock.
/// let (home, east, west) = (TestCluster::start(), TestCluster::start(), TestCluster::start());
/// let manager = Manager::new(home.client());
/// let clusters = Clusters::new(&manager)?;
/// let all = clusters.clone();
/// clusters.controller("maps").for_::<ConfigMap>().complete(move |request: Request<ClusterKey>| {
///     let all = all.clone();
///     async move {
///         if let Some(cluster) = all.get(&request.key.cluster) {
///             let map = cluster.cached_client().get::<ConfigMap>(&request.key.key).await?;
///             println!("{} is there: {}", request.key, map.is_some());
///         }
///         Ok::<_, ReconcileError>(Action::await_change())
///     }
/// })?;
/// clusters.engage("east", east.client())?;
/// home.run(async move { manager.run(std::future::pending()).await });
/// clusters.engage("west", west.client())?;
/// west.create(config_map("settings")).await;
/// west.settle().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Clusters(Arc<Inner>);

struct Inner {
    manager: Manager,
    /// Guards the engaged clusters.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    clusters: BTreeMap<Arc<str>, Cluster>,
    recipes: Vec<Recipe>,
}

impl State {
    /// Returns `true` if this cluster is engaged. After it was disengaged, another one may be engaged under its name.
    fn has(&self, cluster: &Cluster) -> bool {
        self.clusters
            .get(&cluster.name)
            .is_some_and(|it| it.id() == cluster.id())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    New,
    Running,
    Stopped,
}

/// Function that adds a controller's watches when a cluster is engaged.
pub(super) type Recipe = Arc<dyn Fn(&Cluster) -> Result<(), Error> + Send + Sync>;

/// An engaged cluster. Clones refer to the same cluster.
#[derive(Clone)]
pub struct Cluster {
    name: Arc<str>,
    client: Client,
    cached_client: CachedClient,
    factory: SharedInformerFactory,
}

impl Cluster {
    /// Returns the name under which the cluster was engaged.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn id(&self) -> ClusterId {
        ClusterId::new(&self.name)
    }

    /// Returns the client of the cluster. Like writes of [`Manager::client`], its writes are recorded, and refused
    /// after this process has lost the lease.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns a client that reads from the caches of the cluster and writes to the cluster.
    pub fn cached_client(&self) -> CachedClient {
        self.cached_client.clone()
    }

    /// Returns the informer factory of the cluster.
    pub fn factory(&self) -> SharedInformerFactory {
        self.factory.clone()
    }
}

impl Clusters {
    /// Creates an empty set of clusters. The manager runs the informers of clusters that are engaged later.
    ///
    /// # Errors
    ///
    /// Fails if the manager already has a `Clusters`, or has stopped.
    pub fn new(manager: &Manager) -> Result<Self, Error> {
        let clusters = Self(Arc::new(Inner {
            manager: manager.clone(),
            state: Mutex::default(),
        }));
        manager.add(Informers(clusters.clone()))?;
        Ok(clusters)
    }

    /// Adds a cluster (multicluster-runtime's `Engage`).
    ///
    /// # Errors
    ///
    /// Fails if a cluster with this name is already engaged, or the manager has stopped.
    pub fn engage(&self, name: &str, client: Client) -> Result<Cluster, Error> {
        let factory = SharedInformerFactory::new(client.clone());
        self.engage_with(name, client, factory)
    }

    /// Engages a cluster with a custom informer factory, for example a factory that is restricted to some namespaces or
    /// has a seed. If a controller cannot watch the cluster, the cluster is not engaged, and its factory is stopped.
    ///
    /// # Errors
    ///
    /// See [`engage`](Self::engage). Also fails if an informer of the factory has stopped.
    pub fn engage_with(&self, name: &str, client: Client, factory: SharedInformerFactory) -> Result<Cluster, Error> {
        let name: Arc<str> = name.into();
        let client = Writes::observe_in(Some(ClusterId::new(&name)), &self.0.manager.fenced(&client));
        let cluster = Cluster {
            name: Arc::clone(&name),
            cached_client: CachedClient::of_observed(client.clone(), &factory),
            client,
            factory,
        };
        let recipes = {
            let mut state = self.state();
            if state.phase == Phase::Stopped {
                return Err(Error::refused(format!("cluster {name:?}: the manager has stopped")));
            }
            if state.clusters.contains_key(&name) {
                return Err(Error::refused(format!("cluster {name:?} is already engaged")));
            }
            state.clusters.insert(name, cluster.clone());
            state.recipes.clone()
        };
        if let Err(err) = recipes.iter().try_for_each(|recipe| recipe(&cluster)) {
            cluster.factory.stop();
            let mut state = self.state();
            if state.has(&cluster) {
                state.clusters.remove(&cluster.name);
            }
            return Err(err);
        }
        self.start(&cluster);
        Ok(cluster)
    }

    /// Starts the informers that the recipes have added to a cluster, if the manager runs. The manager may have started
    /// while the recipes ran.
    fn start(&self, cluster: &Cluster) {
        if self.state().phase == Phase::Running {
            cluster.factory.start();
        }
    }

    /// Disengages a cluster and stops its informers. Keys of the cluster that are already queued are still reconciled,
    /// but [`get`](Self::get) returns `None` for the cluster. Does nothing if no cluster has this name.
    pub async fn disengage(&self, name: &str) {
        let cluster = self.state().clusters.remove(name);
        if let Some(cluster) = cluster {
            cluster.factory.shutdown().await;
        }
    }

    /// Returns the cluster with this name if it is engaged.
    pub fn get(&self, name: &str) -> Option<Cluster> {
        self.state().clusters.get(name).cloned()
    }

    /// Returns the names of all engaged clusters, sorted.
    pub fn names(&self) -> Vec<Arc<str>> {
        self.state().clusters.keys().cloned().collect()
    }

    pub(super) fn manager(&self) -> &Manager {
        &self.0.manager
    }

    /// Calls `recipe` for all engaged clusters, and for clusters that are engaged later.
    pub(super) fn add(&self, recipe: Recipe) -> Result<(), Error> {
        let clusters: Vec<_> = {
            let mut state = self.state();
            state.recipes.push(Arc::clone(&recipe));
            state.clusters.values().cloned().collect()
        };
        let mut result = Ok(());
        for cluster in clusters {
            match recipe(&cluster) {
                Ok(()) => self.start(&cluster),
                // The cluster has been disengaged in the meantime.
                Err(_) if !self.state().has(&cluster) => {}
                Err(err) => result = result.and(Err(err)),
            }
        }
        result
    }

    fn enter(&self, phase: Phase) -> Vec<Cluster> {
        let mut state = self.state();
        state.phase = phase;
        state.clusters.values().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the informers of all clusters, and stops them with the manager.
struct Informers(Clusters);

impl Runnable for Informers {
    fn name(&self) -> String {
        "clusters".to_owned()
    }

    fn group(&self) -> RunnableGroup {
        // Controllers read the caches until they have stopped.
        RunnableGroup::Server
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> {
        async move {
            let _abandons = AbandonOnDrop(self.0.clone());
            for cluster in self.0.enter(Phase::Running) {
                cluster.factory.start();
            }
            stop.cancelled().await;
            let clusters = self.0.enter(Phase::Stopped);
            join_all(clusters.iter().map(|it| it.factory.shutdown())).await;
            Ok(())
        }
        .boxed()
    }
}

/// Stops the informers of all clusters when it is dropped, even if the manager has aborted its runnables.
struct AbandonOnDrop(Clusters);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        for cluster in self.0.enter(Phase::Stopped) {
            cluster.factory.abandon();
        }
    }
}

impl fmt::Debug for Clusters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clusters").field(&self.names()).finish()
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn client() -> Client {
        let never = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, kube::Error>>()
        });
        Client::new(never, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn informers_of_a_cluster_that_is_engaged_during_the_start_are_started() {
        let clusters = Clusters::new(&Manager::new(client())).expect("the manager has no other clusters");
        let starting = clusters.clone();
        let recipe: Recipe = Arc::new(move |cluster: &Cluster| {
            for cluster in starting.enter(Phase::Running) {
                cluster.factory.start();
            }
            cluster.factory.informer::<ConfigMap>();
            Ok(())
        });
        clusters.add(recipe).expect("no cluster is engaged");
        let cluster = clusters.engage("east", client()).expect("the name is unused");
        assert!(cluster.factory.started::<ConfigMap>("/api/v1/configmaps").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn controller_is_added_to_other_clusters_if_one_is_disengaged_meanwhile() {
        let clusters = Clusters::new(&Manager::new(client())).expect("these are the first clusters of the manager");
        for name in ["a", "b"] {
            clusters.engage(name, client()).expect("the name is unused");
        }
        let (others, watched) = (clusters.clone(), Arc::new(Mutex::new(Vec::new())));
        let noted = Arc::clone(&watched);
        let recipe: Recipe = Arc::new(move |cluster: &Cluster| {
            noted
                .lock()
                .expect("the lock is not poisoned")
                .push(cluster.name.clone());
            if &*cluster.name == "a" {
                others.state().clusters.remove("a");
                return Err(Error::refused("the informer has stopped"));
            }
            Ok(())
        });
        clusters.add(recipe).expect("the failed cluster is no longer engaged");
        assert_eq!(
            *watched.lock().expect("the lock is not poisoned"),
            ["a".into(), "b".into()]
        );
    }
}
