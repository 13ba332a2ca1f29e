//! `ClusterControllerBuilder`: builds a controller for objects in several clusters.

use std::any::TypeId;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::try_join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use kube::Resource;
use kube::core::ClusterResourceScope;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::cluster_key::ClusterKey;
use super::clusters::{Cluster, Clusters};
use super::controller_builder::ControllerBuilder;
use super::later_watches::LaterWatches;
use super::manager::Manager;
use crate::cache::HandlerRegistration;
use crate::handler::{Event, ToKeys, enqueue};
use crate::reconcile::{Collection, Reconciler};
use crate::{Cacheable, Error, ObjectKey};

/// Function that starts a watch in an engaged cluster.
type Watch =
    Box<dyn Fn(&LaterWatches<ClusterKey>, &Cluster, &Arc<Engaged>) -> Result<HandlerRegistration, Error> + Send + Sync>;

/// Builder of a controller for objects in several clusters; see [`Clusters::controller`].
#[must_use = "a builder does nothing until `complete` is called"]
pub struct ClusterControllerBuilder {
    clusters: Clusters,
    builder: ControllerBuilder<Manager, ClusterKey>,
    owner: Option<(String, String, bool)>,
    watches: Vec<Watch>,
    fault: Option<String>,
}

impl Clusters {
    /// Returns a builder for a controller of all engaged clusters. The manager runs the controller once it is
    /// [complete](ClusterControllerBuilder::complete).
    pub fn controller(&self, name: &str) -> ClusterControllerBuilder {
        ClusterControllerBuilder::new(name, self, self.manager())
    }
}

impl ClusterControllerBuilder {
    fn new(name: &str, clusters: &Clusters, manager: &Manager) -> Self {
        Self {
            clusters: clusters.clone(),
            builder: manager.controller(name).keyed_by::<ClusterKey>(),
            owner: None,
            watches: Vec::new(),
            fault: None,
        }
    }

    /// Sets the type that the controller reconciles: an event of an object enqueues the object's key, together with the
    /// name of its cluster. May only be called once.
    pub fn for_<K>(mut self) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        let is_of_cluster = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
        let kind = (K::group(&()).into_owned(), K::kind(&()).into_owned(), is_of_cluster);
        self.builder.owner_kind = Some(kind.clone());
        if self.owner.replace(kind).is_some() {
            self.fault.get_or_insert_with(|| "`for_` was called twice".to_owned());
        }
        self.watches::<K>(enqueue::object())
    }

    /// Watches a type of dependent objects: events enqueue the owner that is marked as controller, in the same cluster.
    /// Must be called after [`for_`](Self::for_).
    pub fn owns<K>(mut self) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        let Some((group, kind, is_of_cluster)) = &self.owner else {
            let fault = format!("`for_` must be called before `owns` for {}", K::kind(&()));
            self.fault.get_or_insert(fault);
            return self;
        };
        let owner = enqueue::owner_of_kind(group, kind, *is_of_cluster).controller_only();
        self.watches::<K>(owner)
    }

    /// Watches a type. Events enqueue the keys that `to_keys` returns, in the same cluster.
    pub fn watches<K>(mut self, to_keys: impl ToKeys<K> + Clone) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.watches.push(Box::new(move |watches, cluster, engaged| {
            let to_keys = InCluster {
                cluster: Arc::clone(cluster.name()),
                engaged: Arc::clone(engaged),
                to_keys: to_keys.clone(),
            };
            let informer = cluster.factory().informer::<K>();
            let collection = Collection::of::<K>(Some(cluster.id()), &());
            watches.add(Some(collection), &informer, to_keys, |_: &Event<K>| true)
        }));
        self
    }

    /// Sets further options of the controller, such as concurrency, rate limiter and filters.
    pub fn with(
        mut self,
        change: impl FnOnce(ControllerBuilder<Manager, ClusterKey>) -> ControllerBuilder<Manager, ClusterKey>,
    ) -> Self {
        self.builder = change(self.builder);
        self
    }

    /// Builds the controller and adds it to the manager, which runs it.
    ///
    /// # Errors
    ///
    /// Fails if the controller does not watch anything, `for_` is called twice, or `owns` is called before `for_`. See
    /// also [`Manager::add`].
    pub fn complete(self, reconciler: impl Reconciler<ClusterKey>) -> Result<(), Error> {
        let fault = self.fault.or_else(|| {
            self.watches
                .is_empty()
                .then(|| "the controller has nothing to watch".to_owned())
        });
        if let Some(fault) = fault {
            return Err(Error::refused(format!("multi-cluster controller: {fault}")));
        }
        // The controller itself begins without watches; watches are added for each cluster.
        let (engage, arrivals) = unbounded_channel();
        let builder = self
            .builder
            .source(|_, stop| async move { _ = stop.run_until_cancelled(let_in(arrivals)).await });
        let (manager, controller) = builder.apart(reconciler)?;
        let later = controller.later_watches();
        manager.add(controller)?;
        let watches = self.watches;
        self.clusters.add(Arc::new(move |cluster: &Cluster| {
            let engaged = Arc::new(Engaged::default());
            let begun = watches.iter().map(|watch| watch(&later, cluster, &engaged));
            let arrival = Arrival {
                watches: begun.collect::<Result<_, _>>()?,
                engaged,
                later: later.clone(),
            };
            // Sending only fails if the controller has ended.
            let _ = engage.send(arrival);
            Ok(())
        }))
    }
}

/// A newly engaged cluster with caches that are still syncing.
struct Arrival {
    watches: Vec<HandlerRegistration>,
    engaged: Arc<Engaged>,
    later: LaterWatches<ClusterKey>,
}

/// Releases the held keys of each cluster once all caches that the controller watches in this cluster have synced.
/// Clusters that never sync do not delay other clusters.
async fn let_in(mut arrivals: UnboundedReceiver<Arrival>) {
    let mut syncing = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(arrival) = arrivals.recv() => syncing.push(async move {
                let all = arrival.watches.iter().map(HandlerRegistration::synced);
                // If the cluster is disengaged before its caches have synced, the held keys are dropped.
                if try_join_all(all).await.is_ok() {
                    arrival.engaged.let_in(|key| arrival.later.add_key(key));
                }
            }),
            Some(()) = syncing.next() => {}
            else => return,
        }
    }
}

/// Holds back the keys of a cluster until all caches that the controller watches in this cluster have synced. Otherwise
/// a reconcile could miss objects that the caches do not contain yet, and create them again.
struct Engaged {
    /// The held keys; `None` once they have been released.
    waiting: Mutex<Option<BTreeSet<ClusterKey>>>,
}

impl Default for Engaged {
    fn default() -> Self {
        Self {
            waiting: Mutex::new(Some(BTreeSet::new())),
        }
    }
}

impl Engaged {
    /// Holds back a key if the caches have not synced yet; otherwise passes it to `push`.
    fn pass(&self, key: ClusterKey, push: &mut dyn FnMut(ClusterKey)) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *waiting {
            Some(keys) => {
                keys.insert(key);
            }
            None => {
                drop(waiting);
                push(key);
            }
        }
    }

    /// Passes the held keys to `add`, and stops holding keys back.
    fn let_in(&self, add: impl FnMut(ClusterKey)) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        waiting.into_iter().flatten().for_each(add);
    }
}

/// Wraps a mapping to object keys so that it returns cluster keys, which contain the name of the cluster.
struct InCluster<M> {
    cluster: Arc<str>,
    engaged: Arc<Engaged>,
    to_keys: M,
}

impl<K, M: ToKeys<K>> ToKeys<K, ClusterKey> for InCluster<M> {
    fn keys(&self, event: &Event<K>, push: &mut dyn FnMut(ClusterKey)) {
        self.to_keys.keys(event, &mut |key: ObjectKey| {
            let key = ClusterKey {
                cluster: Arc::clone(&self.cluster),
                key,
            };
            self.engaged.pass(key, push);
        });
    }
}

impl fmt::Debug for ClusterControllerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterControllerBuilder")
            .field("builder", &self.builder)
            .field("watches", &self.watches.len())
            .finish_non_exhaustive()
    }
}
