//! `Reflector`: keeps a store in sync with the server by listing and watching, and handles failures of the server. It
//! does not depend on the code that uses the objects.

mod backoff;
mod contact;
mod document;
mod list;
mod options;
mod source;
mod store;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

pub use backoff::Backoff;
pub(crate) use contact::Contact;
pub use options::ReflectorOptions;
pub(crate) use source::Source;
pub(crate) use store::{ReflectorStore, Unread};

use super::list_watch::ListWatch;
use crate::jitter::Jitter;
use crate::object::Cacheable;
use crate::{Error, ObjectKey, ResourceVersion};
use backoff::Waits;

/// Keeps a store in sync with the server (client-go's `Reflector`): lists, watches from the listed version, resumes
/// watches that end, and lists again if a watch cannot be resumed.
///
/// ```
/// use informer::cache::{ApiListWatch, Indexer, Reflector, ReflectorOptions};
/// use k8s_openapi::api::core::v1::Pod;
///
/// # async fn reflect(client: kube::Client, shutdown: impl Future<Output = ()> + Send) {
/// let pods = Indexer::<Pod>::new();
/// let source = ApiListWatch::all::<Pod>(client, &());
/// let reflector = Reflector::new(source, pods.clone(), ReflectorOptions::default());
/// reflector.run(shutdown).await; // read `pods.lister()` meanwhile
/// # }
/// ```
pub struct Reflector<K, S> {
    source: Arc<dyn Source>,
    store: S,
    options: ReflectorOptions<K>,
    /// Guards the version of the last list, event or bookmark.
    last: Mutex<ResourceVersion>,
    contact: Contact,
    kind: PhantomData<fn(K)>,
}

/// State of one run of a reflector.
struct Run {
    jitter: Jitter,
    waits: Waits,
    /// Set if the last version has expired on the server, so that the next list requests the newest state.
    is_last_unavailable: bool,
    /// Set if the server split a list that requested any version (`"0"`) into pages. Such a server has no watch cache,
    /// so later lists also request pages.
    comes_in_pages: bool,
    /// Set if the source did not mark the end of the initial events, so that streaming lists are no longer attempted.
    cannot_stream: bool,
}

impl<K: Cacheable, S: ReflectorStore<K>> Reflector<K, S> {
    /// Creates a reflector that copies the objects of `source` into `store` once it is [`run`](Self::run).
    pub fn new(source: impl ListWatch, store: S, options: ReflectorOptions<K>) -> Self {
        Self::of_source(Arc::new(source), store, options)
    }

    pub(crate) fn of_source(source: Arc<dyn Source>, store: S, options: ReflectorOptions<K>) -> Self {
        Self {
            source,
            store,
            options,
            last: Mutex::default(),
            contact: Contact::default(),
            kind: PhantomData,
        }
    }

    /// Returns the version of the last list, event or bookmark; empty before the first list.
    pub fn last_sync_resource_version(&self) -> ResourceVersion {
        self.last().clone()
    }

    /// Keeps the store up to date until `shutdown` completes. Failures are passed to the [error
    /// handler](ReflectorOptions::on_error) and retried indefinitely, with a [`Backoff`].
    pub async fn run(&self, shutdown: impl Future<Output = ()> + Send) {
        let shutdown = std::pin::pin!(shutdown);
        let work = std::pin::pin!(self.work());
        futures::future::select(shutdown, work).await;
    }

    /// Returns the name of the listed resource, for messages.
    pub(crate) fn name(&self) -> String {
        self.source.name()
    }

    pub(crate) fn store(&self) -> &S {
        &self.store
    }

    /// Returns `true` if the source may contain the object with this key and these labels.
    pub(crate) fn may_have(&self, key: &ObjectKey, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.source.may_have(key, labels)
    }

    /// Returns the state of the connection to the source.
    pub(crate) fn contact(&self) -> &Contact {
        &self.contact
    }

    /// Returns the maximum time for which a healthy source sends no data. After a longer time, the cache may be stale.
    pub(crate) fn longest_silence(&self) -> Duration {
        let silence = self.watch_silence().unwrap_or_else(|| self.options.longest_watch());
        silence.saturating_add(self.options.request_timeout)
    }

    async fn work(&self) {
        self.contact.heard();
        let mut run = Run {
            jitter: Jitter::new(self.options.seed, &self.source.name()),
            waits: Waits::new(self.options.backoff),
            is_last_unavailable: false,
            comes_in_pages: false,
            cannot_stream: false,
        };
        loop {
            if let Err(err) = self.list_and_watch(&mut run).await {
                self.report(&err);
            }
            // Also pause after a successful pass, in case the server ends every watch immediately.
            self.pause(&mut run).await;
        }
    }

    /// Lists the objects, then watches their changes until the watch cannot be resumed.
    async fn list_and_watch(&self, run: &mut Run) -> Result<(), Error> {
        let mut stream: Option<watch::Stream> = None;
        if self.options.streaming_lists && self.source.can_stream_lists() && !run.cannot_stream {
            match self.watch_list(run).await {
                Ok(body) => stream = Some(body),
                Err(err) => tracing::debug!(source = self.source.name(), %err, "no streaming list; listing instead"),
            }
        }
        if stream.is_none() {
            self.list(run).await?;
        }
        self.watch(run, stream).await
    }

    /// Counts a failure, and calls the error handler.
    fn report(&self, err: &Error) {
        self.contact.failed(err);
        self.options.report(&self.source.name(), err);
    }

    /// Counts and reports an object that cannot be decoded. The cache keeps the object's previous state.
    fn report_unread(&self, err: &Error) {
        self.contact.failed(err);
        self.options.report_unread(&self.source.name(), err);
    }

    async fn pause(&self, run: &mut Run) {
        let wait = run.waits.next(&mut run.jitter);
        sleep(wait).await;
    }

    fn last(&self) -> MutexGuard<'_, ResourceVersion> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, S> fmt::Debug for Reflector<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reflector({})", self.source.name())
    }
}
