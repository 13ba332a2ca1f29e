//! `Authorizer`: the permissions of a user at the time of a request, for code without a registry, such as expressions.

use std::sync::Arc;

use super::{Authorization, Decision, Policy, decision};
use crate::api::rbac::Attributes;
use crate::api::user::UserInfo;

/// A user, with the Roles and bindings at the time of the request.
#[derive(Clone, Debug)]
pub(crate) struct Authorizer {
    user: Arc<UserInfo>,
    /// Roles and bindings; `None` without RBAC.
    policy: Option<Arc<Policy>>,
}

impl Authorizer {
    /// Returns an authorizer for another user, with the same Roles and bindings.
    pub(crate) fn of(&self, user: UserInfo) -> Self {
        Self {
            user: Arc::new(user),
            policy: self.policy.clone(),
        }
    }

    /// Returns the decision about a request, with the reason.
    pub(crate) fn decide(&self, request: &Attributes<'_>) -> Decision {
        decision(self.policy.as_deref(), &self.user, request)
    }
}

impl PartialEq for Authorizer {
    fn eq(&self, other: &Self) -> bool {
        let is_same = match (&self.policy, &other.policy) {
            (None, None) => true,
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (None, Some(_)) | (Some(_), None) => false,
        };
        is_same && self.user == other.user
    }
}

impl Eq for Authorizer {}

impl Authorization {
    /// Returns the authorizer of a user, with the current Roles and bindings.
    pub(crate) fn authorizer(&self, user: &UserInfo) -> Authorizer {
        Authorizer {
            user: Arc::new(user.clone()),
            policy: self.rbac.as_ref().map(|rbac| self.policy(rbac)),
        }
    }
}
