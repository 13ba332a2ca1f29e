//! `ServerOptions`: the options that a server shares with its forks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::api::kubernetes_version::KubernetesVersion;
use crate::egress::Routes;
use crate::endpoints::audit::Audit;
use crate::endpoints::journal::JournalBounds;
use crate::endpoints::metrics::InflightLimits;
use crate::registry::LogBounds;
use crate::registry::admission::AdmissionSetup;
use crate::registry::authentication::Authentication;
use crate::registry::kinds::service::ClusterRange;
use crate::registry::scheme::enablement::Enablement;
use crate::registry::tokens::TokenOptions;
use crate::workers::Worker;

/// Default bounds of the logs.
const LOGS: LogBounds = LogBounds {
    changes: 16_384,
    bytes: 32 << 20,
};

/// Default lifetime of an Event, equal to the default of kube-apiserver's `--event-ttl`.
const EVENT_TTL: Duration = Duration::from_secs(3600);

/// Default time between compactions, equal to the default of kube-apiserver's `--etcd-compaction-interval`.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(300);

/// Default endpoint of the Service `kubernetes`: an address reserved for documentation (RFC 5737), which is never used,
/// and kube-apiserver's default port.
const ENDPOINT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 6443);

/// Options that a server and its forks share.
#[derive(Clone, Debug)]
pub(crate) struct ServerOptions {
    pub(crate) logs: LogBounds,
    pub(crate) journal: JournalBounds,
    pub(crate) workers: Vec<Worker>,
    pub(crate) authorization: Authorization,
    pub(crate) authentication: Authentication,
    pub(crate) tokens: TokenOptions,
    pub(crate) admission: AdmissionSetup,
    pub(crate) routes: Routes,
    pub(crate) nodes: usize,
    pub(crate) kubernetes_service: bool,
    pub(crate) cluster_range: ClusterRange,
    pub(crate) kubernetes_endpoint: SocketAddr,
    pub(crate) event_ttl: Option<Duration>,
    pub(crate) inflight: InflightLimits,
    pub(crate) audit: Option<Audit>,
    pub(crate) version: KubernetesVersion,
    pub(crate) enablement: Enablement,
    pub(crate) compaction_interval: Option<Duration>,
    pub(crate) removal_delay: Duration,
}

/// Authorization mode, like `--authorization-mode` of kube-apiserver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Authorization {
    /// Every user may do everything. Requests with an unknown token are attributed to the administrator, unless
    /// [`Anonymous::Refused`](crate::Anonymous::Refused) requires credentials.
    #[default]
    AlwaysAllow,
    /// Roles, ClusterRoles and their bindings determine the permissions; `system:masters` has all permissions. Common
    /// ClusterRoles exist from the start, such as `cluster-admin`, `admin`, `edit`, `view`, `system:discovery`.
    Rbac,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            logs: LOGS,
            journal: JournalBounds::default(),
            workers: Vec::new(),
            authorization: Authorization::default(),
            authentication: Authentication::default(),
            tokens: TokenOptions::default(),
            admission: AdmissionSetup::default(),
            routes: Routes::default(),
            nodes: 0,
            kubernetes_service: false,
            cluster_range: ClusterRange::default(),
            kubernetes_endpoint: ENDPOINT,
            event_ttl: Some(EVENT_TTL),
            inflight: InflightLimits::default(),
            audit: None,
            version: KubernetesVersion::default(),
            enablement: Enablement::default(),
            compaction_interval: Some(COMPACTION_INTERVAL),
            removal_delay: Duration::ZERO,
        }
    }
}
