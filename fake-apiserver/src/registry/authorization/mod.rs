//! Authorization by the stored Roles and bindings, which are parsed again after a write to any of them (rule Q2).
//! Without RBAC every user has all permissions.

mod policy;
mod escalation;
mod references;
mod aggregation;
mod bootstrap;
pub(crate) mod authorizer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::reader::Reader;
use super::scheme::Row;
use super::writer::Writer;
use crate::api::rbac::{Attributes, PolicyRule};
use crate::api::status::Status;
use crate::api::user::{MASTERS, UserInfo};
use crate::storage::Key;

pub(crate) use bootstrap::objects as bootstrap_objects;
pub(in crate::registry) use escalation::changes_only_gc_fields;
use policy::Policy;

/// The API group of Roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io";
/// Prefix of the storage names of RBAC resources.
const STORAGE_PREFIX: &str = "rbac.authorization.k8s.io/";
/// Storage name of ClusterRoles.
const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";

/// RBAC: the stored Roles and bindings, indexed for decisions.
#[derive(Debug, Default)]
pub(crate) struct Rbac {
    /// Number of writes of Roles and bindings.
    writes: AtomicU64,
    /// The parsed policy, with the value of `writes` for which it was read; `None` before the first request.
    policy: RwLock<Option<(u64, Arc<Policy>)>>,
    /// Set if aggregated ClusterRoles are updated after writes of ClusterRoles.
    aggregates: bool,
    /// Lock that is held while aggregated ClusterRoles are updated.
    aggregating: Mutex<()>,
}

impl Rbac {
    /// Creates the RBAC authorizer. It reads the policy at the first decision.
    pub(crate) fn new(aggregates: bool) -> Self {
        Self {
            aggregates,
            ..Self::default()
        }
    }
}

/// The decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) is_allowed: bool,
    /// Reason given by RBAC; may be empty.
    pub(crate) reason: String,
}

/// Returns the decision about a user's request under a policy, with the reason. Without a policy every request is
/// allowed.
fn decision(policy: Option<&Policy>, user: &UserInfo, request: &Attributes<'_>) -> Decision {
    let (is_allowed, reason) = match policy {
        None => (true, String::new()),
        Some(_) if user.is_in(MASTERS) => (true, String::new()),
        Some(policy) => match policy.find(user, request) {
            Some(grant) => (true, format!("RBAC: allowed by {grant}")),
            None => (false, policy.reason(user, request.namespace)),
        },
    };
    Decision { is_allowed, reason }
}

/// Authorization of requests, by the stored Roles and bindings if RBAC is enabled.
#[derive(Debug)]
pub(crate) struct Authorization {
    reader: Arc<Reader>,
    writer: Arc<Writer>,
    /// RBAC; `None` if every user has all permissions.
    rbac: Option<Rbac>,
}

impl Authorization {
    pub(super) fn new((reader, writer): (Arc<Reader>, Arc<Writer>), rbac: Option<Rbac>) -> Self {
        Self { reader, writer, rbac }
    }

    /// Returns `true` if RBAC is enabled.
    pub(crate) fn has_rbac(&self) -> bool {
        self.rbac.is_some()
    }

    /// Returns `true` if the request is allowed for the user.
    pub(crate) fn is_allowed(&self, user: &UserInfo, request: &Attributes<'_>) -> bool {
        match &self.rbac {
            None => true,
            Some(rbac) => user.is_in(MASTERS) || self.policy(rbac).find(user, request).is_some(),
        }
    }

    /// Fails with 403 if the request is not allowed for the user (rule A23).
    pub(crate) fn authorize(&self, user: &UserInfo, request: &Attributes<'_>) -> Result<(), Status> {
        if self.is_allowed(user, request) {
            return Ok(());
        }
        let reason = self.decide(user, request).reason;
        Err(Status::not_allowed(request, &user.name, &reason))
    }

    /// Returns the decision about a user's request, with the reason.
    pub(crate) fn decide(&self, user: &UserInfo, request: &Attributes<'_>) -> Decision {
        let policy = self.rbac.as_ref().map(|rbac| self.policy(rbac));
        decision(policy.as_deref(), user, request)
    }

    /// Returns all rules of a user in a namespace and in the cluster, and the errors of the bindings.
    pub(crate) fn rules_of(&self, user: &UserInfo, namespace: &str) -> (Vec<PolicyRule>, Vec<String>) {
        match &self.rbac {
            None => (PolicyRule::everything().into(), Vec::new()),
            Some(rbac) => self.policy(rbac).rules_of(user, namespace),
        }
    }

    /// Called after each write. Marks the policy as outdated after a write to a Role or binding, and updates aggregated
    /// ClusterRoles after a write to a ClusterRole.
    pub(super) fn roles_written(&self, row: &Row, key: &Key) {
        let Some(rbac) = self.rbac.as_ref().filter(|_| row.storage.starts_with(STORAGE_PREFIX)) else {
            return;
        };
        rbac.writes.fetch_add(1, Ordering::SeqCst);
        if rbac.aggregates && *row.storage == *CLUSTER_ROLES {
            self.aggregate_cluster_roles(rbac, row, key.as_str());
        }
    }

    /// Updates the aggregated ClusterRoles of a server that starts with stored objects.
    pub(crate) fn aggregate_roles(&self) {
        let row = self.reader.scheme().lookup(GROUP, "v1", "clusterroles");
        if let (Some(rbac), Some(row)) = (&self.rbac, row) {
            self.aggregate_cluster_roles(rbac, &row, "the start");
        }
    }

    /// Called after all stored objects were replaced: marks the policy as outdated.
    pub(super) fn roles_replaced(&self) {
        if let Some(rbac) = &self.rbac {
            rbac.writes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Returns the current policy. It is only read again after a write to a Role or binding.
    fn policy(&self, rbac: &Rbac) -> Arc<Policy> {
        let writes = rbac.writes.load(Ordering::SeqCst);
        let known = rbac.policy.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, policy)) = known.as_ref().filter(|(at, _)| *at == writes) {
            return Arc::clone(policy);
        }
        drop(known);
        let policy = Arc::new(Policy::read(|resource| self.reader.stored_objects(GROUP, resource)));
        *rbac.policy.write().unwrap_or_else(PoisonError::into_inner) = Some((writes, Arc::clone(&policy)));
        policy
    }
}
