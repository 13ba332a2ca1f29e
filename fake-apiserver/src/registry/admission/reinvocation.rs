//! `Reinvocation`: tracks the webhooks and policies that must run again for a request after a later change (rule P1).

use std::collections::BTreeSet;

use crate::api::object::Object;

/// State of the mutating phase of one request (rule P1).
#[derive(Debug, Default)]
pub(super) struct Reinvocation {
    /// Indexes of webhooks with reinvocationPolicy IfNeeded that were called since the object last changed, including
    /// the webhook that changed it.
    pub(super) asked: BTreeSet<usize>,
    /// Indexes of webhooks to be called again.
    pub(super) again: BTreeSet<usize>,
    /// Set if the mutating phase must run again.
    pub(super) is_needed: bool,
    /// The object after the last round of webhook calls.
    pub(super) left: Option<Object>,
    /// Set once the object has been parsed again after the first patch.
    pub(super) is_read_back: bool,
    #[cfg(feature = "cel")]
    pub(super) policies: PolicyRounds,
}

/// A mutating policy, its binding, and the namespace and name of the parameter.
#[cfg(feature = "cel")]
pub(super) type PolicyKey = [String; 4];

/// The mutating policies of one request.
#[cfg(feature = "cel")]
#[derive(Debug, Default)]
pub(super) struct PolicyRounds {
    /// Policies with reinvocationPolicy IfNeeded that ran since the object last changed, including the policy that
    /// changed it.
    pub(super) asked: BTreeSet<PolicyKey>,
    /// Policies that run again.
    pub(super) again: BTreeSet<PolicyKey>,
    /// The object after the last round of policies.
    pub(super) left: Option<Object>,
}

#[cfg(feature = "cel")]
impl PolicyRounds {
    /// Called after a change of the object: schedules the earlier policies to run again.
    pub(super) fn changed(&mut self) {
        self.again.append(&mut self.asked);
    }
}

impl Reinvocation {
    /// Called after a change of the object: schedules the earlier webhooks to be called again.
    pub(super) fn changed(&mut self) {
        self.again.append(&mut self.asked);
        self.is_needed = true;
    }
}
