//! `SharedInformerFactory`: one informer for each type.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, TryFutureExt, join_all, try_join_all};
use kube::core::{ApiResource, ClusterResourceScope, DynamicObject, PartialObjectMeta};
use kube::{Client, Resource};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::by_object::ByObject;
use super::informer::{SharedInformer, SharedInformerBuilder, StopOnDrop};
use super::list_watch::ApiListWatch;
use crate::cache_state::CacheState;
use crate::metrics::{Collect, Metrics, Samples};
use crate::object::{Cacheable, Storage};
use crate::tasks::TaskGroup;
use crate::{Error, ObjectKey, ResourceVersion};

/// Creates and shares one informer for each type; the informers start and stop together (client-go's
/// `SharedInformerFactory`). Clones refer to the same factory.
///
/// ```
/// use informer::cache::SharedInformerFactory;
/// use k8s_openapi::api::apps::v1::Deployment;
/// use k8s_openapi::api::core::v1::Pod;
///
/// # async fn start(client: kube::Client) -> Result<(), informer::Error> {
/// let factory = SharedInformerFactory::builder(client).strip_managed_fields().build();
/// let (pods, deployments) = (factory.informer::<Pod>(), factory.informer::<Deployment>());
/// factory.start();
/// factory.wait_for_cache_sync().await?;
/// println!("{} Pods of {} Deployments", pods.lister().len(), deployments.lister().len());
/// factory.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedInformerFactory {
    shared: Arc<Shared>,
}

struct Shared {
    config: SharedInformerFactoryBuilder,
    /// Guards the informers.
    informers: Mutex<Informers>,
    tasks: TaskGroup,
    stop: watch::Sender<bool>,
}

#[derive(Default)]
struct Informers {
    /// The informers, in the order of their first request.
    entries: Vec<Entry>,
    /// Runtime on which further informers are started immediately; `None` if they wait for
    /// [`SharedInformerFactory::start`].
    runtime: Option<Handle>,
}

/// An informer with its type and path.
struct Entry {
    kind: TypeId,
    path: String,
    informer: Arc<dyn Member>,
    is_started: bool,
}

/// A type-erased informer.
trait Member: CacheState {
    fn run(&self, stop: watch::Receiver<bool>) -> BoxFuture<'static, ()>;
    fn synced(&self) -> BoxFuture<'static, Result<(), Error>>;
    fn has_synced(&self) -> bool;
    fn is_read(&self) -> bool;
    fn patience(&self) -> Option<Duration>;
    fn reason(&self) -> Option<String>;
    fn check(&self) -> Result<(), Error>;
    fn collect(&self, samples: &mut Samples);
    fn as_any(&self) -> &dyn Any;
}

impl<K: Cacheable> Member for SharedInformer<K> {
    fn run(&self, mut stop: watch::Receiver<bool>) -> BoxFuture<'static, ()> {
        let informer = StopOnDrop(self.clone());
        async move {
            let stopped = async move {
                // An error means that the factory was dropped, which also stops its informers.
                let _ = stop.wait_for(|it| *it).await;
            };
            if let Err(err) = Self::run(&informer.0, stopped).await {
                tracing::error!(%err, "an informer of a factory did not start");
            }
        }
        .boxed()
    }

    fn synced(&self) -> BoxFuture<'static, Result<(), Error>> {
        let informer = self.clone();
        async move { Self::synced(&informer).await }.boxed()
    }

    fn has_synced(&self) -> bool {
        Self::has_synced(self)
    }

    fn is_read(&self) -> bool {
        Self::is_read(self)
    }

    fn patience(&self) -> Option<Duration> {
        Self::patience(self)
    }

    fn reason(&self) -> Option<String> {
        Self::reason(self)
    }

    fn check(&self) -> Result<(), Error> {
        Self::check(self)
    }

    fn collect(&self, samples: &mut Samples) {
        Self::collect(self, samples);
    }

    fn as_any(&self) -> &dyn Any {
        self
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

/// Properties of a requested type: whether only metadata is stored, and the scope.
#[derive(Clone, Copy, Debug, Default)]
struct Form {
    is_metadata: bool,
    /// Set if the type is cluster-scoped.
    is_of_cluster: bool,
}

impl Form {
    fn of<K: Resource>() -> Self
    where
        K::Scope: 'static,
    {
        Self {
            is_metadata: false,
            is_of_cluster: TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>(),
        }
    }
}

/// Function that changes the list and watch requests of all informers of a factory.
type Tweak = Arc<dyn Fn(ApiListWatch) -> ApiListWatch + Send + Sync>;

/// Builder of a [`SharedInformerFactory`]. All options have defaults.
#[derive(Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct SharedInformerFactoryBuilder {
    client: Client,
    namespaces: Vec<String>,
    tweak: Option<Tweak>,
    resync_period: Duration,
    storage: Storage,
    strips_managed_fields: bool,
    seed: u64,
    /// The options (`ByObject<K>`) of types that override the factory's options.
    by_object: BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl SharedInformerFactoryBuilder {
    /// Sets options for the informer of one type. `K`, `PartialObjectMeta<K>` and `DynamicObject` are separate types;
    /// options for `DynamicObject` apply to all informers from [`SharedInformerFactory::dynamic`] and
    /// [`SharedInformerFactory::dynamic_of_cluster`].
    ///
    /// # Errors
    ///
    /// Fails if two of its indexes have the same name, or the type already has options.
    pub fn by_object<K: Cacheable>(mut self, options: ByObject<K>) -> Result<Self, Error> {
        options.check()?;
        if self.by_object.insert(TypeId::of::<K>(), Arc::new(options)).is_some() {
            let name = std::any::type_name::<K>();
            return Err(Error::refused(format!("factory: {name} already has options")));
        }
        Ok(self)
    }

    /// Watches only objects in this namespace. Each further call adds a namespace. Default: all namespaces. Does not
    /// affect cluster-scoped types.
    pub fn namespace(mut self, namespace: &str) -> Self {
        if !self.namespaces.iter().any(|it| it == namespace) {
            self.namespaces.push(namespace.to_owned());
        }
        self
    }

    /// Changes the list and watch requests of all informers, for example by adding a label selector.
    pub fn tweak(mut self, tweak: impl Fn(ApiListWatch) -> ApiListWatch + Send + Sync + 'static) -> Self {
        self.tweak = Some(Arc::new(tweak));
        self
    }

    /// Sets the default interval at which handlers receive all objects again. Default: zero, which disables resyncs.
    pub fn resync_period(mut self, period: Duration) -> Self {
        self.resync_period = period;
        self
    }

    /// Sets the representation of stored objects. Default: [`Storage::Encoded`].
    pub fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// Removes `metadata.managedFields` before objects are stored.
    pub fn strip_managed_fields(mut self) -> Self {
        self.strips_managed_fields = true;
        self
    }

    /// Sets the seed of all jitter; see [`ReflectorOptions::seed`](super::ReflectorOptions::seed). Default: 0, which
    /// selects a random seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the seed unless it is set already.
    pub(crate) fn seed_if_unset(mut self, seed: u64) -> Self {
        if self.seed == 0 {
            self.seed = seed;
        }
        self
    }

    /// Builds the factory.
    pub fn build(self) -> SharedInformerFactory {
        SharedInformerFactory {
            shared: Arc::new(Shared {
                config: self,
                informers: Mutex::default(),
                tasks: TaskGroup::default(),
                stop: watch::Sender::new(false),
            }),
        }
    }

    /// Creates an informer. `path` returns the path to list and watch for a namespace.
    fn informer<K: Cacheable>(&self, path: impl Fn(Option<&str>) -> String, form: Form) -> SharedInformer<K> {
        let options = self.by_object.get(&TypeId::of::<K>());
        let options = options.and_then(|it| it.downcast_ref::<ByObject<K>>());
        let source = |namespace: Option<&str>| {
            let mut source = ApiListWatch::at(self.client.clone(), path(namespace));
            if form.is_metadata {
                source = source.metadata_only();
            }
            if let Some(tweak) = &self.tweak {
                source = tweak(source);
            }
            match options {
                Some(options) => options.change_source(source),
                None => source,
            }
        };
        let namespaces = options
            .and_then(|it| it.namespaces.as_ref())
            .unwrap_or(&self.namespaces);
        let mut builder: SharedInformerBuilder<K> = if namespaces.is_empty() || form.is_of_cluster {
            SharedInformer::builder(source(None))
        } else {
            SharedInformer::of_namespaces(namespaces.iter().map(|it| (it.as_str(), source(Some(it)))))
        };
        builder = builder
            .resync_period(self.resync_period)
            .storage(self.storage)
            .seed(self.seed);
        if self.strips_managed_fields {
            builder = builder.strip_managed_fields();
        }
        if let Some(options) = options {
            builder = options.change_informer(builder);
        }
        builder.build().expect("the namespaces and indexes have no duplicates")
    }
}

impl SharedInformerFactory {
    /// Creates a factory with default options, for all namespaces.
    pub fn new(client: Client) -> Self {
        Self::builder(client).build()
    }

    /// Returns a builder for a factory.
    pub fn builder(client: Client) -> SharedInformerFactoryBuilder {
        SharedInformerFactoryBuilder {
            client,
            namespaces: Vec::new(),
            tweak: None,
            resync_period: Duration::ZERO,
            storage: Storage::default(),
            strips_managed_fields: false,
            seed: 0,
            by_object: BTreeMap::new(),
        }
    }

    /// Returns the informer of a type. Repeated calls return the same informer. Whole objects, their metadata and
    /// dynamic objects have separate informers.
    pub fn informer<K>(&self) -> SharedInformer<K>
    where
        K: Cacheable + Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        self.member(|namespace| K::url_path(&(), namespace), Form::of::<K>())
    }

    /// Returns the informer of a namespaced resource without a Rust type.
    pub fn dynamic(&self, resource: &ApiResource) -> SharedInformer<DynamicObject> {
        self.member(
            |namespace| DynamicObject::url_path(resource, namespace),
            Form::default(),
        )
    }

    /// Returns the informer of a cluster-scoped resource without a Rust type.
    pub fn dynamic_of_cluster(&self, resource: &ApiResource) -> SharedInformer<DynamicObject> {
        let form = Form {
            is_of_cluster: true,
            ..Form::default()
        };
        self.member(|namespace| DynamicObject::url_path(resource, namespace), form)
    }

    /// Returns an informer that only stores the metadata of a type; the server does not send the other fields.
    pub fn metadata<K>(&self) -> SharedInformer<PartialObjectMeta<K>>
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
        K::Scope: 'static,
    {
        let form = Form {
            is_metadata: true,
            ..Form::of::<K>()
        };
        self.member(|namespace| K::url_path(&(), namespace), form)
    }

    /// Starts all informers that have not been started. Must be called again after further informers were requested.
    /// Does nothing after a shutdown. Must be called within a tokio runtime.
    pub fn start(&self) {
        self.start_on(&mut self.lock(), &Handle::current());
    }

    /// Starts all informers. After this call, each further informer is started when it is requested.
    pub(crate) fn keep_starting(&self) {
        let (mut informers, runtime) = (self.lock(), Handle::current());
        self.start_on(&mut informers, &runtime);
        informers.runtime = Some(runtime);
    }

    fn start_on(&self, informers: &mut Informers, runtime: &Handle) {
        if *self.shared.stop.borrow() {
            return;
        }
        for entry in informers.entries.iter_mut().filter(|it| !it.is_started) {
            entry.is_started = true;
            let running = entry.informer.run(self.shared.stop.subscribe());
            self.shared.tasks.spawn_on(running, runtime);
        }
    }

    /// Waits until all started informers have synced.
    ///
    /// # Errors
    ///
    /// Fails if an informer stops before it has synced.
    pub async fn wait_for_cache_sync(&self) -> Result<(), Error> {
        let synced: Vec<_> = self
            .lock()
            .entries
            .iter()
            .filter(|it| it.is_started)
            .map(|it| it.informer.synced())
            .collect();
        join_all(synced).await.into_iter().collect()
    }

    /// Waits until the started informers that `whose` selects have synced. Waits for each informer as long as its
    /// controllers do, or for `limit` if no controller waits for it. The error names the informers that have not
    /// synced.
    pub(crate) fn synced_within(&self, limit: Duration, whose: Whose) -> BoxFuture<'static, Result<(), Error>> {
        let is_one = |it: &&Entry| {
            let is_free = it.informer.patience().is_none();
            it.is_started && (is_free || whose == Whose::FreeOrRead && it.informer.is_read())
        };
        let informers = self.lock();
        let waited: Vec<_> = informers
            .entries
            .iter()
            .filter(is_one)
            .map(|it| (it.path.clone(), Arc::clone(&it.informer)))
            .collect();
        async move {
            let each = waited.iter().map(|(_, informer)| {
                let limit = informer.patience().unwrap_or(limit);
                timeout(limit, informer.synced()).map_err(move |_| limit)
            });
            let limit = match try_join_all(each).await {
                Ok(all) => return all.into_iter().collect(),
                Err(limit) => limit,
            };
            let late = waited.iter().filter(|(_, informer)| !informer.has_synced());
            let late: Vec<_> = late
                .map(|(path, informer)| (path.as_str(), informer.reason()))
                .collect();
            Err(late_caches(limit, &late))
        }
        .boxed()
    }

    /// Stops all informers and waits for their handlers. Informers cannot be started afterwards.
    pub async fn shutdown(&self) {
        self.stop();
        self.shared.tasks.finished().await;
    }

    /// Stops all informers, without waiting for their handlers.
    pub(crate) fn stop(&self) {
        self.shared.stop.send_replace(true);
    }

    /// Stops all informers, and aborts their tasks at their next await points.
    pub(crate) fn abandon(&self) {
        self.stop();
        self.shared.tasks.abort();
    }

    /// Returns the started informers of a resource, which is given as group and plural: `apps/deployments`, or `/pods`
    /// for the core group. There may be several, for different versions or representations of the objects.
    pub(crate) fn caches_of(&self, resource: &str) -> Vec<Arc<dyn CacheState>> {
        let informers = self.lock();
        let of_it = informers
            .entries
            .iter()
            .filter(|it| it.is_started && resource_of(&it.path).is_some_and(|it| it == resource));
        of_it
            .map(|it| Arc::clone(&it.informer) as Arc<dyn CacheState>)
            .collect()
    }

    /// Returns the informer for this path, if it exists and has been started.
    pub(crate) fn started<K: Cacheable>(&self, path: &str) -> Option<SharedInformer<K>> {
        let informers = self.lock();
        let known = informers
            .entries
            .iter()
            .find(|it| it.is_started && it.kind == TypeId::of::<K>() && it.path == path);
        known.and_then(|it| it.informer.as_any().downcast_ref().cloned())
    }

    fn member<K: Cacheable>(&self, path: impl Fn(Option<&str>) -> String, form: Form) -> SharedInformer<K> {
        let mut informers = self.lock();
        let (kind, whole) = (TypeId::of::<K>(), path(None));
        let known = informers.entries.iter().find(|it| it.kind == kind && it.path == whole);
        if let Some(informer) = known.and_then(|it| it.informer.as_any().downcast_ref::<SharedInformer<K>>()) {
            return informer.clone();
        }
        let informer = self.shared.config.informer::<K>(path, form);
        informers.entries.push(Entry {
            kind,
            path: whole,
            informer: Arc::new(informer.clone()),
            is_started: false,
        });
        if let Some(runtime) = informers.runtime.clone() {
            self.start_on(&mut informers, &runtime);
        }
        informer
    }

    /// Registers the metrics of all informers; see [`SharedInformer::register_metrics`].
    pub fn register_metrics(&self, metrics: &Metrics) {
        let collector: Arc<dyn Collect> = self.shared.clone();
        metrics.register(&collector);
    }

    /// Checks all informers; see [`SharedInformer::check`].
    ///
    /// # Errors
    ///
    /// Fails with the error of the first informer that fails the check.
    pub fn check(&self) -> Result<(), Error> {
        let members = self.shared.members();
        members.iter().try_for_each(|it| it.check())
    }

    fn lock(&self) -> MutexGuard<'_, Informers> {
        self.shared.informers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the group and plural of a path such as `/apis/apps/v1/deployments`.
fn resource_of(path: &str) -> Option<String> {
    let parts: Vec<_> = path.trim_matches('/').split('/').collect();
    match parts[..] {
        ["api", _, plural] => Some(format!("/{plural}")),
        ["apis", group, _, plural] => Some(format!("{group}/{plural}")),
        _ => None,
    }
}

/// Selects the informers to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Informers that no controller waits for.
    Free,
    /// Informers that no controller waits for, and all informers that are read through a lister.
    FreeOrRead,
}

impl Shared {
    fn members(&self) -> Vec<Arc<dyn Member>> {
        let informers = self.informers.lock().unwrap_or_else(PoisonError::into_inner);
        informers.entries.iter().map(|it| Arc::clone(&it.informer)).collect()
    }
}

impl Collect for Shared {
    fn collect(&self, samples: &mut Samples) {
        self.members().iter().for_each(|it| it.collect(samples));
    }
}

/// Default time limit for caches to sync.
pub(crate) const CACHE_SYNC_TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the error for caches that have not synced in time, each with its last failure, if any.
pub(crate) fn late_caches(limit: Duration, late: &[(&str, Option<String>)]) -> Error {
    let of_one = |(path, reason): &(&str, Option<String>)| match reason {
        Some(reason) => format!("{path} ({reason})"),
        None => (*path).to_owned(),
    };
    let late: Vec<_> = late.iter().map(of_one).collect();
    Error::refused(format!(
        "timed out after {limit:?} waiting for caches to sync: {}",
        late.join(", ")
    ))
}

impl fmt::Debug for SharedInformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.lock().entries.iter().map(|it| it.path.clone()).collect();
        f.debug_struct("SharedInformerFactory")
            .field("informers", &paths)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SharedInformerFactoryBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformerFactoryBuilder")
            .field("namespaces", &self.namespaces)
            .finish_non_exhaustive()
    }
}
