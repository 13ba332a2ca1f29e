//! `ClusterControllerBuilder`: a controller whose keys are of several clusters.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use kube::Resource;
use kube::core::ClusterResourceScope;

use super::clusters::{Cluster, ClusterKey, Clusters};
use super::controller_builder::ControllerBuilder;
use super::later_watches::LaterWatches;
use super::manager::Manager;
use crate::handler::{Event, ToKeys, enqueue};
use crate::reconcile::{Collection, Reconciler};
use crate::{Cacheable, Error, ObjectKey};

/// Begins a watch in a cluster.
type Watch = Box<dyn Fn(&LaterWatches<ClusterKey>, &Cluster) -> Result<(), Error> + Send + Sync>;

/// Options of a controller of several clusters; see [`Clusters::controller`].
#[must_use = "a builder does nothing until `complete` is called"]
pub struct ClusterControllerBuilder {
    clusters: Clusters,
    builder: ControllerBuilder<Manager, ClusterKey>,
    owner: Option<(String, String, bool)>,
    watches: Vec<Watch>,
    fault: Option<String>,
}

impl ClusterControllerBuilder {
    pub(super) fn new(name: &str, clusters: &Clusters, manager: &Manager) -> Self {
        Self {
            clusters: clusters.clone(),
            builder: manager.controller(name).keyed_by::<ClusterKey>(),
            owner: None,
            watches: Vec::new(),
            fault: None,
        }
    }

    /// The type the controller is for: a change of an object is worked on under its own key in its own cluster. Once.
    pub fn for_<K>(mut self) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        let is_of_cluster = TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>();
        let kind = (K::group(&()).into_owned(), K::kind(&()).into_owned(), is_of_cluster);
        if self.owner.replace(kind).is_some() {
            self.fault.get_or_insert_with(|| "`for_` was called twice".to_owned());
        }
        self.watches::<K>(enqueue::object())
    }

    /// A type of which objects belong to those that the controller is for, in the same cluster. Call it after
    /// [`for_`](Self::for_).
    pub fn owns<K>(mut self) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        let Some((group, kind, is_of_cluster)) = &self.owner else {
            let fault = format!("`owns` of {} comes before `for_`", K::kind(&()));
            self.fault.get_or_insert(fault);
            return self;
        };
        let owner = enqueue::owner_of_kind(group, kind, *is_of_cluster).controller_only();
        self.watches::<K>(owner)
    }

    /// A type of which changes concern the keys that `to_keys` says, in the same cluster.
    pub fn watches<K>(mut self, to_keys: impl ToKeys<K> + Clone) -> Self
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.watches.push(Box::new(move |watches, cluster| {
            let to_keys = InCluster {
                cluster: Arc::clone(cluster.name()),
                to_keys: to_keys.clone(),
            };
            let informer = cluster.factory().informer::<K>();
            let collection = Collection::of::<K>(Some(cluster.id()), &());
            watches
                .add(Some(collection), &informer, to_keys, |_: &Event<K>| true)
                .map(drop)
        }));
        self
    }

    /// Says the rest of the controller: concurrency, rate limiter, filters.
    pub fn with(
        mut self,
        change: impl FnOnce(ControllerBuilder<Manager, ClusterKey>) -> ControllerBuilder<Manager, ClusterKey>,
    ) -> Self {
        self.builder = change(self.builder);
        self
    }

    /// Builds the controller and gives it to the manager.
    ///
    /// # Errors
    ///
    /// If nothing is watched, `for_` is called twice, `owns` comes before it, or as [`Manager::add`].
    pub fn complete(self, reconciler: impl Reconciler<ClusterKey>) -> Result<(), Error> {
        let fault = self
            .fault
            .or_else(|| self.watches.is_empty().then(|| "there is nothing to watch".to_owned()));
        if let Some(fault) = fault {
            return Err(Error::refused(format!("controller of clusters: {fault}")));
        }
        // Watches come with their clusters.
        let builder = self.builder.source(|_, stop| async move { stop.cancelled().await });
        let (manager, controller) = builder.apart(reconciler)?;
        let later = controller.later_watches();
        manager.add(controller)?;
        let watches = self.watches;
        self.clusters.add(Arc::new(move |cluster: &Cluster| {
            watches.iter().try_for_each(|watch| watch(&later, cluster))
        }))
    }
}

/// The keys that another says, in a cluster.
struct InCluster<M> {
    cluster: Arc<str>,
    to_keys: M,
}

impl<K, M: ToKeys<K>> ToKeys<K, ClusterKey> for InCluster<M> {
    fn keys(&self, event: &Event<K>, push: &mut dyn FnMut(ClusterKey)) {
        self.to_keys.keys(event, &mut |key: ObjectKey| {
            push(ClusterKey {
                cluster: Arc::clone(&self.cluster),
                key,
            });
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
