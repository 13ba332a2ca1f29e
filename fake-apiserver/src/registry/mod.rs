//! Implements the verbs. HTTP handlers access the state only through `Registry`. The module depends on storage and
//! watches, but not on HTTP.

#![cfg_attr(
    not(feature = "cel"),
    allow(dead_code, reason = "many parts are only used by expressions")
)]

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::streams::PodStreams;
use crate::entropy::Entropy;
pub(crate) use crate::storage::LogBounds;
use crate::storage::{Store, World};

pub(crate) mod types;
pub(crate) mod scheme;
pub(crate) mod webhook;
pub(crate) mod admission;
#[cfg_attr(not(feature = "cel"), path = "cel/absent.rs")]
pub(crate) mod cel;
pub(crate) mod kinds;
pub(crate) mod custom;
pub(crate) mod reader;
pub(crate) mod request;
pub(crate) mod writer;
pub(crate) mod answer;
mod commit;
pub(crate) mod remote;
mod own_loops;
mod addresses;
pub(crate) mod registrations;
mod recent;
mod owners;
pub(crate) mod create;
pub(crate) mod update;
pub(crate) mod patch;
pub(crate) mod modify;
pub(crate) mod managed_fields;
pub(crate) mod delete;
pub(crate) mod subresources;
pub(crate) mod authentication;
pub(crate) mod authorization;
mod token_owner;
pub(crate) mod tokens;
pub(crate) mod definitions;

use admission::{Admission, AdmissionSetup};
use authentication::{Access, Authentication};
use authorization::{Authorization, Rbac};
use definitions::Definitions;
pub(crate) use definitions::ReadDefinitions;
use reader::Reader;
use recent::Recent;
use remote::RemoteChecks;
use scheme::enablement::Enablement;
use tokens::TokenOptions;
use writer::Writer;

/// Handler of connections to Pods; see [`Registry::pod_streams`].
struct Streams(Box<dyn PodStreams>);

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Streams")
    }
}

/// Options of a registry.
#[derive(Debug)]
pub(crate) struct Setup {
    /// Limits of the stored history.
    pub(crate) logs: LogBounds,
    /// Lifetime of an Event after its last write; `None` if Events do not expire.
    pub(crate) event_ttl: Option<Duration>,
    /// Time between compactions; `None` disables them.
    pub(crate) compaction_interval: Option<Duration>,
    /// Time between the two writes of an immediate deletion of a Pod: setting its deletionTimestamp, and removing it.
    pub(crate) removal_delay: Duration,
    pub(crate) authentication: Authentication,
    pub(crate) tokens: TokenOptions,
    /// RBAC; `None` if every user has all permissions.
    pub(crate) rbac: Option<Rbac>,
    pub(crate) admission: AdmissionSetup,
    /// Set if the server maintains the APIServices of the served groups and the IPAddresses of Services.
    pub(crate) keeps_own_objects: bool,
}

/// The state of a server, and all operations on it.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Read access to the state of the server.
    pub(crate) reader: Arc<Reader>,
    /// Write access to storage.
    pub(crate) writer: Arc<Writer>,
    /// Plugins, policies and webhooks, which may change or refuse a write.
    pub(crate) admission: Admission,
    /// The CRDs and the resources that are served for them.
    pub(crate) definitions: Definitions,
    /// Set if the server maintains the APIServices of the served groups and the IPAddresses of Services.
    keeps_own_objects: bool,
    /// Time between the two writes of an immediate deletion of a Pod: setting its deletionTimestamp, and removing it.
    removal_delay: Duration,
    /// Cache of the most recently written objects.
    recent: Recent,
    /// Pending calls to the servers of APIServices.
    pub(crate) remote_checks: Arc<RemoteChecks>,
    /// Handler of connections to Pods, if a kubelet runs.
    pod_streams: OnceLock<Streams>,
    /// Authentication: users, and the tokens of ServiceAccounts.
    pub(crate) access: Access,
    /// Authorization: RBAC, if it is enabled.
    pub(crate) authorization: Arc<Authorization>,
}

impl Registry {
    /// Creates a registry with the stored objects of `world`, and serves its CRDs. `initial` contains the parsed CRDs
    /// if another server has already parsed them.
    pub(crate) fn new(world: World, initial: ReadDefinitions, entropy: Entropy, setup: Setup) -> Self {
        let store = Store::new(world, setup.logs);
        let transport = Arc::clone(&setup.admission.transport);
        let reader = Arc::new(Reader::new(
            store,
            entropy,
            transport,
            setup.compaction_interval,
            setup.admission.plugins,
        ));
        let writer = Arc::new(Writer::new(Arc::clone(&reader), setup.event_ttl));
        let doors = || (Arc::clone(&reader), Arc::clone(&writer));
        let authorization = Arc::new(Authorization::new(doors(), setup.rbac));
        let registry = Self {
            access: Access::new(Arc::clone(&reader), setup.authentication, setup.tokens),
            admission: Admission::new(doors(), Arc::clone(&authorization), setup.admission),
            authorization,
            definitions: Definitions::new(doors(), initial),
            keeps_own_objects: setup.keeps_own_objects,
            removal_delay: setup.removal_delay,
            recent: Recent::default(),
            remote_checks: Arc::default(),
            pod_streams: OnceLock::new(),
            reader,
            writer,
        };
        registry.definitions.load();
        registry.writer.events_replaced();
        registry
    }

    /// Serves the built-in resources that a version of Kubernetes serves with this enablement.
    pub(crate) fn enable(&self, version: KubernetesVersion, enablement: &Enablement) {
        self.reader.change_scheme(|scheme| scheme.enable(version, enablement));
    }

    /// Sets the handler of connections to Pods; only the first call has an effect.
    pub(crate) fn set_pod_streams(&self, streams: impl PodStreams + 'static) {
        let _ = self.pod_streams.set(Streams(Box::new(streams)));
    }

    /// Returns the handler of connections to Pods; `None` if no kubelet runs.
    fn pod_streams(&self) -> Option<&dyn PodStreams> {
        self.pod_streams.get().map(|it| &*it.0)
    }
}
