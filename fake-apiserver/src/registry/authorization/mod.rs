//! Authorization by the stored Roles and bindings, which are parsed again after each write of one of them (rule Q2).
//! Without RBAC every user has all permissions, and this module is not called.

mod policy;
mod escalation;
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
use policy::Policy;

/// The API group of Roles and bindings.
const GROUP: &str = "rbac.authorization.k8s.io";
/// Prefix of the storage names of its resources.
const STORAGE_PREFIX: &str = "rbac.authorization.k8s.io/";
/// The storage name of ClusterRoles.
const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";

/// RBAC: the stored Roles and bindings, indexed for decisions.
#[derive(Debug, Default)]
pub(crate) struct Rbac {
    /// Number of writes of Roles and bindings.
    writes: AtomicU64,
    /// The policy read from them, and the number of writes before; `None` before the first request.
    policy: RwLock<Option<(u64, Arc<Policy>)>>,
    /// Set if writes of ClusterRoles update aggregated ones.
    aggregates: bool,
    /// Held while aggregated ClusterRoles are brought up to date.
    aggregating: Mutex<()>,
}

impl Rbac {
    /// Returns RBAC before the first decision.
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
    /// Reason of RBAC; may be empty.
    pub(crate) reason: String,
}

/// Decides if a user may do something under a policy, with the reason; without one every user may do everything.
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

/// Decisions by the stored Roles and bindings, if RBAC is on.
#[derive(Debug)]
pub(crate) struct Authorization {
    reader: Arc<Reader>,
    writer: Arc<Writer>,
    /// `None` without RBAC: every user has all permissions.
    rbac: Option<Rbac>,
}

impl Authorization {
    pub(super) fn new((reader, writer): (Arc<Reader>, Arc<Writer>), rbac: Option<Rbac>) -> Self {
        Self { reader, writer, rbac }
    }

    /// Returns `true` if RBAC is on.
    pub(crate) fn has_rbac(&self) -> bool {
        self.rbac.is_some()
    }

    /// Returns `true` if the user may do this.
    pub(crate) fn is_allowed(&self, user: &UserInfo, request: &Attributes<'_>) -> bool {
        match &self.rbac {
            None => true,
            Some(rbac) => user.is_in(MASTERS) || self.policy(rbac).find(user, request).is_some(),
        }
    }

    /// Fails with 403 if the user may not do this (rule A23).
    pub(crate) fn authorize(&self, user: &UserInfo, request: &Attributes<'_>) -> Result<(), Status> {
        if self.is_allowed(user, request) {
            return Ok(());
        }
        let reason = self.decide(user, request).reason;
        Err(Status::not_allowed(request, &user.name, &reason))
    }

    /// Decides if the user may do this, with the reason.
    pub(crate) fn decide(&self, user: &UserInfo, request: &Attributes<'_>) -> Decision {
        let policy = self.rbac.as_ref().map(|rbac| self.policy(rbac));
        decision(policy.as_deref(), user, request)
    }

    /// Every rule of a user in a namespace and in the cluster, and the errors of the bindings.
    pub(crate) fn rules_of(&self, user: &UserInfo, namespace: &str) -> (Vec<PolicyRule>, Vec<String>) {
        match &self.rbac {
            None => (PolicyRule::everything().into(), Vec::new()),
            Some(rbac) => self.policy(rbac).rules_of(user, namespace),
        }
    }

    /// After a write to a Role or a binding.
    pub(super) fn roles_written(&self, row: &Row, key: &Key) {
        let Some(rbac) = self.rbac.as_ref().filter(|_| row.storage.starts_with(STORAGE_PREFIX)) else {
            return;
        };
        rbac.writes.fetch_add(1, Ordering::SeqCst);
        if rbac.aggregates && *row.storage == *CLUSTER_ROLES {
            self.aggregate_cluster_roles(rbac, row, key.as_str());
        }
    }

    /// Gathers the aggregated ClusterRoles of a state that was stored without RBAC.
    pub(crate) fn aggregate_roles(&self) {
        let row = self.reader.scheme().lookup(GROUP, "v1", "clusterroles");
        if let (Some(rbac), Some(row)) = (&self.rbac, row) {
            self.aggregate_cluster_roles(rbac, &row, "the start");
        }
    }

    /// After all state was replaced.
    pub(super) fn roles_replaced(&self) {
        if let Some(rbac) = &self.rbac {
            rbac.writes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Returns the current policy. Only the first request after a write has to read it.
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
