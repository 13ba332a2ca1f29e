//! Meaning of the verbs. `Registry` is the one door from HTTP to state; it knows storage, watch and the vocabulary, and
//! nothing of HTTP.

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::streams::PodStreams;
use crate::entropy::Entropy;
pub(crate) use crate::storage::LogBounds;
use crate::storage::{Store, World};
use crate::watch::{Fanout, Replicas, WatchStart, Watcher};

pub(crate) mod types;
pub(crate) mod scheme;
pub(crate) mod admission;
mod convert;
#[cfg(feature = "cel")]
pub(crate) mod cel;
pub(crate) mod kinds;
pub(crate) mod custom;
pub(crate) mod read;
pub(crate) mod continue_token;
pub(crate) mod write;
mod commit;
mod compaction;
mod expiry;
mod own_loops;
mod known;
mod recent;
pub(crate) mod create;
pub(crate) mod update;
pub(crate) mod patch;
pub(crate) mod modify;
pub(crate) mod managed_fields;
pub(crate) mod delete;
pub(crate) mod subresources;
pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod tokens;
pub(crate) mod lookup;
pub(crate) mod definitions;

use admission::{Admission, AdmissionSetup};
use authentication::Access;
use compaction::Compaction;
use definitions::Definitions;
use expiry::EventLeases;
use known::Known;
use recent::Recent;
use scheme::Scheme;
use scheme::enablement::Enablement;

/// Answers of Pods, for [`Registry::pod_streams`].
struct Streams(Box<dyn PodStreams>);

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Streams")
    }
}

/// Bounds and times of stored state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Of what was changed.
    pub(crate) logs: LogBounds,
    /// Lifetime of an Event after its last write; `None`: for ever.
    pub(crate) event_ttl: Option<Duration>,
    /// Time between compactions; `None`: there are none.
    pub(crate) compaction_interval: Option<Duration>,
    /// Time between the two writes of a Pod's deletion: its mark and its removal.
    pub(crate) removal_delay: Duration,
}

/// All state and its rules.
#[derive(Debug)]
pub(crate) struct Registry {
    /// The objects.
    pub(crate) store: Arc<Store>,
    /// Wakes the watchers of changes.
    pub(crate) fanout: Arc<Fanout>,
    /// Simulated watch-cache lag per client.
    pub(crate) replicas: Arc<Replicas>,
    /// The clock and the random numbers.
    pub(crate) entropy: Entropy,
    /// Signalled by each commit, for readers who wait for a revision.
    pub(crate) committed: Arc<Notify>,
    /// Signalled when the served resources change.
    pub(crate) definitions_changed: Arc<Notify>,
    /// Plugins, policies and webhooks, which may change or refuse a write.
    pub(crate) admission: Admission,
    /// Expiry of Events.
    pub(crate) event_leases: EventLeases,
    /// The stored CRDs as they were last read.
    definitions: Mutex<Definitions>,
    /// Number of requests to finish deleted CRDs since the current pass began; 0 if none is running.
    finishing: AtomicUsize,
    /// Revisions that are forgotten because of their age.
    compaction: Compaction,
    /// Time between the mark and the removal of a Pod without a grace period.
    removal_delay: Duration,
    /// Objects that many writes look at.
    known: Known,
    /// The objects written last.
    recent: Recent,
    /// Answers of Pods to connections, where there is a kubelet.
    pod_streams: OnceLock<Streams>,
    /// Authentication and authorization.
    pub(crate) access: Access,
    /// The served resources. Replaced as a whole when a CRD changes.
    scheme: RwLock<Arc<Scheme>>,
}

impl Registry {
    /// A registry of `world`. CRDs in it are served.
    pub(crate) fn new(
        world: World,
        bounds: Bounds,
        entropy: Entropy,
        access: Access,
        admission: AdmissionSetup,
    ) -> Self {
        let registry = Self {
            store: Arc::new(Store::new(world, bounds.logs)),
            fanout: Arc::default(),
            access,
            replicas: Arc::default(),
            entropy,
            committed: Arc::default(),
            definitions_changed: Arc::default(),
            admission: Admission::new(admission),
            event_leases: EventLeases::new(bounds.event_ttl),
            definitions: Mutex::default(),
            finishing: AtomicUsize::new(0),
            compaction: Compaction::new(bounds.compaction_interval),
            removal_delay: bounds.removal_delay,
            known: Known::default(),
            recent: Recent::default(),
            pod_streams: OnceLock::new(),
            scheme: RwLock::default(),
        };
        registry.load_definitions();
        registry.events_replaced();
        registry
    }

    /// The served resources as they are now.
    pub(crate) fn scheme(&self) -> Arc<Scheme> {
        Arc::clone(&self.scheme.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves the built-in resources of a version of Kubernetes, but those that are turned off.
    pub(crate) fn enable(&self, version: KubernetesVersion, enablement: Enablement) {
        self.change_scheme(|scheme| {
            scheme.version = version;
            scheme.enablement = enablement;
        });
    }

    /// Lets Pods answer from here on; the first to be set stays.
    pub(crate) fn set_pod_streams(&self, streams: impl PodStreams + 'static) {
        let _ = self.pod_streams.set(Streams(Box::new(streams)));
    }

    /// Returns the answers of Pods; `None` where there is no kubelet.
    fn pod_streams(&self) -> Option<&dyn PodStreams> {
        self.pod_streams.get().map(|it| &*it.0)
    }

    /// Changes the served resources.
    fn change_scheme(&self, change: impl FnOnce(&mut Scheme)) {
        let mut scheme = self.scheme.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut scheme));
    }

    /// Starts a watcher.
    pub(crate) fn start_watch(&self, start: WatchStart) -> Watcher {
        Watcher::new(Arc::clone(&self.store), Arc::clone(&self.fanout), start)
    }
}

/// An unsigned number, or the error Go's strconv gives.
pub(crate) fn parse_uint(text: &str) -> Result<u64, String> {
    let quoted = || crate::api::field::quote(text);
    if text.is_empty() || !text.bytes().all(|it| it.is_ascii_digit()) {
        return Err(format!("strconv.ParseUint: parsing {}: invalid syntax", quoted()));
    }
    text.parse()
        .map_err(|_| format!("strconv.ParseUint: parsing {}: value out of range", quoted()))
}
