//! `SharedInformer`: a cache of one type, with event handlers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::future::{Either, join_all, select};
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tracing::Instrument;

use super::delta_queue::{Delta, DeltaQueue, Intake, QueueOrder};
use super::handler_failures::HandlerFailures;
use super::index::IndexFn;
use super::indexer::{Indexer, Scope};
use super::list_watch::ListWatch;
use super::listener::{HandlerOptions, HandlerRegistration, MIN_RESYNC};
use super::lister::Lister;
use super::phase::{self, Phase};
use super::processor::{Processor, index_values};
use super::reflector::{Reflector, ReflectorOptions, Source};
use crate::handler::ResourceEventHandler;
use crate::metrics::{Collect, Metrics, Samples};
use crate::object::{Cacheable, CachedObject, Storage, type_name};
use crate::{Error, ObjectKey, ResourceVersion, spans};

/// A cache of the objects of one type, shared by its readers and event handlers (client-go's `SharedIndexInformer`).
/// Clones refer to the same informer.
///
/// An informer does nothing until [`run`](Self::run) is called. Handlers and indexes can be added before and
/// afterwards.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use informer::cache::{FakeSource, SharedInformer};
/// use informer::handler::{Event, HandlerFn};
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), informer::Error> {
/// let source = FakeSource::new(); // in a program: ApiListWatch::all::<ConfigMap>(client, &())
/// source.add(serde_json::json!({"metadata": {"name": "a", "namespace": "shop"}}));
///
/// let maps = SharedInformer::<ConfigMap>::new(source.clone());
/// let seen = Arc::new(Mutex::new(Vec::new()));
/// let log = Arc::clone(&seen);
/// let handler = maps.add_handler(HandlerFn::new(move |event: &Event<ConfigMap>| {
///     log.lock().unwrap().push(format!("{event:?}"));
/// }))?;
/// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
/// let running = tokio::spawn({
///     let maps = maps.clone();
///     async move { maps.run(async { drop(stopped.await) }).await }
/// });
///
/// handler.synced().await?;
/// source.delete("shop", "a");
/// tokio::time::sleep(std::time::Duration::from_millis(1)).await;
/// assert!(maps.lister().is_empty());
/// assert_eq!(*seen.lock().unwrap(), ["initial shop/a@1", "deleted shop/a@2"]);
///
/// drop(stop);
/// running.await.unwrap()
/// # }
/// ```
pub struct SharedInformer<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    reflectors: Vec<Reflector<K, Intake<K>>>,
    queue: Arc<DeltaQueue<K>>,
    indexer: Indexer<K>,
    /// Guards the handlers. Locked while a batch of changes is applied and delivered.
    processor: Mutex<Processor<K>>,
    failures: Arc<HandlerFailures>,
    phase: watch::Sender<Phase>,
    resync_period: Duration,
    /// Notified when a handler is added, because it may have a resync period.
    resyncs_changed: Notify,
    /// Guards the record of listers and controllers that depend on the informer.
    dependence: Mutex<Dependence>,
}

/// Records whether a lister was created, and how long controllers wait for the informer to sync.
#[derive(Clone, Copy, Debug, Default)]
struct Dependence {
    /// Set if [`SharedInformer::lister`] was called.
    is_read: bool,
    /// Shortest time for which a controller waits for the informer.
    patience: Option<Duration>,
}

/// Builder of a [`SharedInformer`]. All options have defaults.
#[must_use = "a builder does nothing until `build` is called"]
pub struct SharedInformerBuilder<K> {
    sources: Vec<(Scope, Arc<dyn Source>)>,
    options: ReflectorOptions<K>,
    order: QueueOrder,
    indexes: Vec<IndexFn<K>>,
    resync_period: Duration,
}

impl<K: Cacheable> SharedInformerBuilder<K> {
    /// Sets the options of the reflector. Replaces all reflector options that were set before.
    pub fn reflector(mut self, options: ReflectorOptions<K>) -> Self {
        self.options = options;
        self
    }

    /// Sets the seed of all jitter; see [`ReflectorOptions::seed`]. Default: 0, which selects a random seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = seed;
        self
    }

    /// Sets the representation of stored objects. Default: [`Storage::Encoded`].
    pub fn storage(mut self, storage: Storage) -> Self {
        self.options.storage = storage;
        self
    }

    /// Removes `metadata.managedFields` before objects are stored.
    pub fn strip_managed_fields(mut self) -> Self {
        self.options = self.options.strip_managed_fields();
        self
    }

    /// Sets a function that changes each object before it is stored; see [`ReflectorOptions::transform`].
    pub fn transform<F, E>(mut self, transform: F) -> Self
    where
        K: Serialize,
        F: Fn(&mut K) -> Result<(), E> + Send + Sync + 'static,
        E: fmt::Display,
    {
        self.options = self.options.transform(transform);
        self
    }

    /// Sets the error handler; see [`ReflectorOptions::on_error`].
    pub fn on_error(mut self, handler: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.options = self.options.on_error(handler);
        self
    }

    /// Sets the order in which changes are applied. Default: [`QueueOrder::Arrival`].
    pub fn order(mut self, order: QueueOrder) -> Self {
        self.order = order;
        self
    }

    /// Sets the default interval at which handlers receive all objects again. Default: zero, which disables resyncs.
    pub fn resync_period(mut self, period: Duration) -> Self {
        self.resync_period = period;
        self
    }

    /// Adds an index.
    pub fn index(mut self, index: IndexFn<K>) -> Self {
        self.indexes.push(index);
        self
    }

    /// Builds the informer.
    ///
    /// # Errors
    ///
    /// Fails if two indexes have the same name, or two sources have the same namespace.
    pub fn build(self) -> Result<SharedInformer<K>, Error> {
        let scopes: Vec<_> = self.sources.iter().map(|(scope, _)| scope.clone()).collect();
        if let Some(twice) = scopes
            .iter()
            .enumerate()
            .find(|(at, scope)| scopes[..*at].contains(scope))
        {
            return Err(Error::refused(format!(
                "two sources have the same namespace: {:?}",
                twice.1
            )));
        }
        let indexer = Indexer::with_sources(scopes.len());
        for index in self.indexes {
            indexer.add_index(index)?;
        }
        let queue = Arc::new(DeltaQueue::new(self.order));
        let reflectors = self.sources.into_iter().enumerate().map(|(number, (scope, source))| {
            let intake = Intake {
                queue: Arc::clone(&queue),
                source: number,
                scope,
                indexer: indexer.clone(),
            };
            Reflector::of_source(source, intake, self.options.clone())
        });
        let processor = Processor::new(scopes, self.order);
        let shared = Shared {
            reflectors: reflectors.collect(),
            failures: processor.failures(),
            processor: Mutex::new(processor),
            queue,
            indexer,
            phase: watch::Sender::new(Phase::New),
            resync_period: at_least_a_second(self.resync_period),
            resyncs_changed: Notify::new(),
            dependence: Mutex::default(),
        };
        Ok(SharedInformer {
            shared: Arc::new(shared),
        })
    }
}

impl<K: Cacheable> SharedInformer<K> {
    /// Creates an informer with default options.
    pub fn new(source: impl ListWatch) -> Self {
        Self::of_shared(Self::builder(source))
    }

    /// Returns a builder for an informer.
    pub fn builder(source: impl ListWatch) -> SharedInformerBuilder<K> {
        SharedInformerBuilder {
            sources: vec![(Scope::All, Arc::new(source))],
            options: ReflectorOptions::default(),
            order: QueueOrder::default(),
            indexes: Vec::new(),
            resync_period: Duration::ZERO,
        }
    }

    /// Returns a builder for an informer of several namespaces, with one source for each. The informer has synced when
    /// all of its sources have synced.
    ///
    /// ```
    /// use informer::cache::{ApiListWatch, SharedInformer};
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// # fn pods(client: kube::Client) -> Result<SharedInformer<Pod>, informer::Error> {
    /// let namespaces = ["shop", "billing"];
    /// let sources = namespaces.map(|it| (it, ApiListWatch::namespaced::<Pod>(client.clone(), it, &())));
    /// let pods = SharedInformer::<Pod>::of_namespaces(sources).strip_managed_fields().build()?;
    /// # Ok(pods)
    /// # }
    /// ```
    pub fn of_namespaces<'a, L: ListWatch>(
        sources: impl IntoIterator<Item = (&'a str, L)>,
    ) -> SharedInformerBuilder<K> {
        let sources = sources.into_iter().map(|(namespace, source)| {
            let source: Arc<dyn Source> = Arc::new(source);
            (Scope::Namespace(namespace.into()), source)
        });
        SharedInformerBuilder {
            sources: sources.collect(),
            options: ReflectorOptions::default(),
            order: QueueOrder::default(),
            indexes: Vec::new(),
            resync_period: Duration::ZERO,
        }
    }

    /// Adds a handler, which receives all existing objects and then every change. Can be called at any time: the
    /// handler receives every change exactly once. Once the informer runs, this must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// Fails if the informer has stopped.
    pub fn add_handler(&self, handler: impl ResourceEventHandler<K>) -> Result<HandlerRegistration, Error> {
        self.add_handler_with(handler, HandlerOptions::default())
    }

    /// Adds a handler with options.
    ///
    /// # Errors
    ///
    /// Fails if the informer has stopped.
    pub fn add_handler_with<H: ResourceEventHandler<K>>(
        &self,
        handler: H,
        options: HandlerOptions,
    ) -> Result<HandlerRegistration, Error> {
        self.add_handler_beside(handler, options, std::future::pending())
    }

    /// Adds a handler and a future that runs concurrently. When one of them ends, the other is dropped.
    pub(crate) fn add_handler_beside<H: ResourceEventHandler<K>>(
        &self,
        handler: H,
        options: HandlerOptions,
        beside: impl Future<Output = ()> + Send + 'static,
    ) -> Result<HandlerRegistration, Error> {
        let mut processor = self.shared.processor();
        self.shared.check_not_stopped("a handler")?;
        let name = options.name.unwrap_or_else(|| std::any::type_name::<H>().to_owned());
        let period = options
            .resync_period
            .map_or(self.shared.resync_period, at_least_a_second);
        let registration = processor.add(handler, beside, name, period, options.queue, &self.shared.indexer);
        drop(processor);
        self.shared.resyncs_changed.notify_one();
        Ok(registration)
    }

    /// Removes a handler. The current call of the handler still completes; [`HandlerRegistration::ended`] waits for it.
    /// The handler is not called again. Does nothing if it was already removed.
    pub fn remove_handler(&self, registration: &HandlerRegistration) {
        self.shared.processor().remove(registration);
    }

    /// Adds an index. Can be called at any time.
    ///
    /// # Errors
    ///
    /// Fails if an index with this name exists, or the informer has stopped.
    pub fn add_index(&self, index: IndexFn<K>) -> Result<(), Error> {
        self.shared.check_not_stopped("an index")?;
        self.shared.indexer.add_index(index)
    }

    /// Returns a lister, which reads the cache.
    pub fn lister(&self) -> Lister<K> {
        self.dependence().is_read = true;
        self.cache()
    }

    /// Returns a lister without recording that the cache is read. Intended for controllers, which wait for the cache
    /// themselves.
    pub(crate) fn cache(&self) -> Lister<K> {
        Lister::of_informer(self.shared.indexer.clone(), self.shared.phase.subscribe())
    }

    /// Returns the uid of the object with this key, if the cache contains it.
    pub(crate) fn uid(&self, key: &ObjectKey) -> Option<String> {
        self.shared.indexer.read().objects.get(key).map(CachedObject::uid)
    }

    /// Returns `true` if the cache contains an object with this key that is being deleted.
    pub(crate) fn is_deleting(&self, key: &ObjectKey) -> bool {
        let state = self.shared.indexer.read();
        state.objects.get(key).is_some_and(CachedObject::is_deleting)
    }

    /// Returns `true` if the cache may contain objects of this namespace.
    pub(crate) fn covers(&self, namespace: &str) -> bool {
        let key = ObjectKey::new(namespace, "");
        self.shared.reflectors.iter().any(|it| it.store().scope.contains(&key))
    }

    /// Returns `true` if the cache contains an object with this key, or if its source may list an object with this key
    /// and these labels.
    pub(crate) fn may_have(&self, key: &ObjectKey, labels: Option<&BTreeMap<String, String>>) -> bool {
        let mut reflectors = self.shared.reflectors.iter();
        self.shared.indexer.read().objects.get(key).is_some()
            || reflectors.any(|it| it.store().scope.contains(key) && it.may_have(key, labels))
    }

    /// Returns the version up to which the cache contains all changes to the object with this key.
    pub(crate) fn version_for(&self, key: &ObjectKey) -> ResourceVersion {
        let mut reflectors = self.shared.reflectors.iter();
        match reflectors.position(|it| it.store().scope.contains(key)) {
            Some(source) => self.shared.indexer.version_of(source),
            None => self.shared.indexer.version(),
        }
    }

    /// Returns the time at which the informer last detected a server that was restored from a backup, for the source of
    /// the object with this key.
    pub(crate) fn restored(&self, key: &ObjectKey) -> Option<Instant> {
        let mut reflectors = self.shared.reflectors.iter();
        let source = reflectors.position(|it| it.store().scope.contains(key))?;
        self.shared.indexer.restored(source)
    }

    /// Returns `true` if [`lister`](Self::lister) was called.
    pub(crate) fn is_read(&self) -> bool {
        self.dependence().is_read
    }

    /// Records that a controller waits for the informer to sync, at most for `timeout`.
    pub(crate) fn is_waited_for(&self, timeout: Duration) {
        let mut dependence = self.dependence();
        let least = dependence.patience.map_or(timeout, |it| it.min(timeout));
        dependence.patience = Some(least);
    }

    /// Returns the shortest time for which a controller waits for the informer; `None` if no controller waits for it.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.dependence().patience
    }

    fn dependence(&self) -> MutexGuard<'_, Dependence> {
        self.shared.dependence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if the cache contains the first list. Handlers may not have received it yet; see
    /// [`HandlerRegistration::has_synced`].
    pub fn has_synced(&self) -> bool {
        self.shared.phase.borrow().has_synced()
    }

    /// Waits until the cache contains the first list.
    ///
    /// # Errors
    ///
    /// Fails if the informer stops before it has synced.
    pub async fn synced(&self) -> Result<(), Error> {
        phase::synced(self.shared.phase.subscribe(), &self.name()).await
    }

    /// Returns the time since the server last sent anything: a response, an event or a bookmark. With several
    /// namespaces, returns the longest of these times. Returns `None` before the informer runs. Servers send a bookmark
    /// to each watch about once per minute.
    pub fn last_contact(&self) -> Option<Duration> {
        let silences = self.shared.reflectors.iter().map(|it| it.contact().silence());
        silences.max().flatten()
    }

    /// Checks that a running informer has received data recently, so that its cache is not stale. The limit is three
    /// minutes if the server sends bookmarks, otherwise the maximum duration of a watch, in both cases plus the
    /// [`request_timeout`](ReflectorOptions::request_timeout). Intended for readiness checks.
    ///
    /// # Errors
    ///
    /// Fails if the cache may be stale; the error contains the last failure.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_stopped() {
            return Ok(());
        }
        for reflector in &self.shared.reflectors {
            let silence = reflector.contact().silence().unwrap_or_default();
            if silence > reflector.longest_silence() {
                let name = reflector.name();
                let why = reflector.contact().failure();
                let why = why.map(|it| format!(": {it}")).unwrap_or_default();
                return Err(Error::refused(format!(
                    "nothing was received from {name} for {silence:.0?}{why}"
                )));
            }
        }
        Ok(())
    }

    /// Registers the metrics `informer_last_contact_seconds`, `informer_failures_total` and `informer_objects`, with
    /// the labels `name` (the listed path) and `type`, and the metrics `informer_handler_failures_total` and
    /// `informer_index_panics_total`, with the further label `handler` or `index`.
    pub fn register_metrics(&self, metrics: &Metrics) {
        let collector: Arc<dyn Collect> = self.shared.clone();
        metrics.register(&collector);
    }

    pub(crate) fn collect(&self, samples: &mut Samples) {
        self.shared.collect(samples);
    }

    /// Returns the last failure, which may explain why the informer has not synced.
    pub(crate) fn reason(&self) -> Option<String> {
        let mut failures = self.shared.reflectors.iter().filter_map(|it| it.contact().failure());
        failures.next().map(|it| it.to_string())
    }

    /// Returns the version of the last list, event or bookmark. With several namespaces, returns the oldest version.
    pub fn last_sync_resource_version(&self) -> ResourceVersion {
        let versions = self.shared.reflectors.iter().map(Reflector::last_sync_resource_version);
        let least = versions.reduce(|least, it| if it < least || it.is_empty() { it } else { least });
        least.unwrap_or_default()
    }

    /// Returns `true` if the informer has run and its run has ended.
    pub fn is_stopped(&self) -> bool {
        self.shared.phase.borrow().is_stopped()
    }

    /// Keeps the cache up to date until `shutdown` completes. Then stops receiving changes, and returns when all
    /// handlers have received their pending events. If the future is dropped, handlers end at their next await point.
    ///
    /// # Errors
    ///
    /// Fails if the informer was run before.
    pub fn run(&self, shutdown: impl Future<Output = ()> + Send) -> impl Future<Output = Result<(), Error>> + Send {
        // Set the phase here instead of at the first poll, so that dropping the unpolled future also stops the
        // informer.
        let mut was_new = false;
        self.shared.phase.send_if_modified(|phase| {
            was_new = *phase == Phase::New;
            if was_new {
                *phase = Phase::Syncing;
            }
            was_new
        });
        let ending = was_new.then(|| Ending(&self.shared));
        async move {
            match ending {
                Some(ending) => {
                    let span = spans::cache(&self.name());
                    self.run_to(ending, shutdown).instrument(span).await
                }
                None => Err(Error::refused(format!(
                    "the informer for {} was already run",
                    self.name()
                ))),
            }
        }
    }

    async fn run_to(&self, ending: Ending<'_, K>, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
        self.shared.processor().start();
        {
            let reflect = join_all(self.shared.reflectors.iter().map(|it| it.run(std::future::pending())));
            let work = select(
                Box::pin(reflect),
                select(Box::pin(self.shared.process()), Box::pin(self.shared.resync())),
            );
            select(std::pin::pin!(shutdown), work).await;
        }
        let handlers = self.shared.stop();
        if let Some(handlers) = handlers {
            handlers.finished().await;
        }
        drop(ending);
        Ok(())
    }

    /// Returns the name of the listed resource, for messages.
    pub(crate) fn name(&self) -> String {
        self.shared.reflectors.first().map(Reflector::name).unwrap_or_default()
    }

    fn of_shared(builder: SharedInformerBuilder<K>) -> Self {
        builder.build().expect("the default options contain no duplicates")
    }
}

impl<K: Cacheable> Shared<K> {
    fn processor(&self) -> MutexGuard<'_, Processor<K>> {
        // Index functions are the only user code that may run while this lock is held, and their panics are caught.
        self.processor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_not_stopped(&self, what: &str) -> Result<(), Error> {
        if self.phase.borrow().is_stopped() {
            return Err(Error::refused(format!(
                "{what} was not added because the informer has stopped"
            )));
        }
        Ok(())
    }

    /// Applies deltas as they arrive.
    async fn process(&self) {
        loop {
            self.queue.filled().await;
            let batch = self.queue.take();
            let values = index_values(&batch, &self.indexer).await;
            let is_last = self.queue.is_empty();
            let mut processor = self.processor();
            processor.process(batch, is_last, &self.indexer, values);
            self.queue.applied();
            if processor.has_synced() {
                self.phase.send_if_modified(|phase| {
                    let is_new = *phase == Phase::Syncing;
                    if is_new {
                        *phase = Phase::Synced;
                    }
                    is_new
                });
            }
        }
    }

    /// Queues a resync whenever a resync is due.
    async fn resync(&self) {
        loop {
            let next = self.processor().next_resync();
            let changed = self.resyncs_changed.notified();
            let is_due = match next {
                None => {
                    changed.await;
                    false
                }
                Some(due) => matches!(
                    select(std::pin::pin!(changed), std::pin::pin!(sleep_until(due))).await,
                    Either::Right(_)
                ),
            };
            if is_due && self.processor().request_resyncs() {
                self.queue.push(Delta::Resync);
            }
        }
    }

    /// Stops the informer. The first call returns the tasks of the handlers.
    fn stop(&self) -> Option<crate::tasks::TaskGroup> {
        let handlers = self.processor().close();
        self.phase.send_if_modified(|phase| {
            let is_new = !phase.is_stopped();
            if is_new {
                *phase = Phase::Stopped {
                    was_synced: phase.has_synced(),
                };
            }
            is_new
        });
        handlers
    }
}

impl<K: Cacheable> Collect for Shared<K> {
    fn collect(&self, samples: &mut Samples) {
        if !samples.is_first_of(self) {
            return;
        }
        let kind = type_name::<K>();
        for reflector in &self.reflectors {
            let name = reflector.name();
            let (labels, contact) = (&[("name", name.as_str()), ("type", &kind)], reflector.contact());
            if let Some(silence) = contact.silence() {
                let help = "Seconds since the server last sent something to the informer.";
                samples.highest("informer_last_contact_seconds", help, labels, silence.as_secs_f64());
            }
            let help = "Failed lists and watches of the informer, and objects that could not be read.";
            samples.counter("informer_failures_total", help, labels, contact.failures() as f64);
        }
        let name = self.reflectors.first().map(Reflector::name).unwrap_or_default();
        let objects = self.indexer.read().objects.len();
        let labels = &[("name", name.as_str()), ("type", &kind)];
        samples.gauge(
            "informer_objects",
            "Objects in the cache of the informer.",
            labels,
            objects as f64,
        );
        self.failures.collect(&name, &kind, samples);
        self.indexer.collect(&name, &kind, samples);
    }
}

/// Guard that stops the informer when its run ends for any reason.
struct Ending<'a, K: Cacheable>(&'a Shared<K>);

impl<K: Cacheable> Drop for Ending<'_, K> {
    fn drop(&mut self) {
        drop(self.0.stop());
    }
}

/// Guard that stops the informer when it is dropped, even if the informer was never run.
pub(crate) struct StopOnDrop<K: Cacheable>(pub(crate) SharedInformer<K>);

impl<K: Cacheable> Drop for StopOnDrop<K> {
    fn drop(&mut self) {
        drop(self.0.shared.stop());
    }
}

/// Raises a resync period to at least one second. Keeps zero, which disables resyncs.
fn at_least_a_second(period: Duration) -> Duration {
    if period.is_zero() || period >= MIN_RESYNC {
        return period;
    }
    tracing::warn!(?period, "a resync period below a second counts as a second");
    MIN_RESYNC
}

/// A reference to an informer that does not keep the informer and its cache alive.
pub(crate) struct WeakInformer<K>(Weak<Shared<K>>);

impl<K> SharedInformer<K> {
    pub(crate) fn downgrade(&self) -> WeakInformer<K> {
        WeakInformer(Arc::downgrade(&self.shared))
    }
}

impl<K> WeakInformer<K> {
    /// Returns the informer, unless it was dropped.
    pub(crate) fn upgrade(&self) -> Option<SharedInformer<K>> {
        self.0.upgrade().map(|shared| SharedInformer { shared })
    }
}

impl<K> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K> fmt::Debug for SharedInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SharedInformer({:?}, {:?})",
            self.shared.reflectors,
            *self.shared.phase.borrow()
        )
    }
}

impl<K> fmt::Debug for SharedInformerBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sources: Vec<_> = self.sources.iter().map(|(_, source)| source.name()).collect();
        f.debug_struct("SharedInformerBuilder")
            .field("sources", &sources)
            .finish_non_exhaustive()
    }
}
