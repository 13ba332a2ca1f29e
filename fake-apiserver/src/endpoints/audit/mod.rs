//! Audit: records the requests that a policy selects as events of `audit.k8s.io/v1`, and sends each event as a line to
//! the configured sink.

use std::fmt;
use std::sync::Arc;

mod policy;
mod event;
mod record;
mod requests;

pub use policy::{AuditPolicy, AuditPolicyError};
pub(crate) use record::Record;
pub(crate) use requests::{begin, sent, unauthenticated};

/// The audit policy, and the receiver of the events.
#[derive(Clone)]
pub(crate) struct Audit {
    pub(crate) policy: Arc<AuditPolicy>,
    pub(crate) sink: Arc<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
