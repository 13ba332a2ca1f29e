//! `Controlled`: what the handlers of the control API share.

use std::sync::Arc;

use super::answer::Refusal;
use crate::server::ApiServer;
use crate::snapshot::{KeptSnapshots, Snapshot};

/// A server, and the states that are kept of it.
#[derive(Clone, Debug)]
pub(super) struct Controlled {
    pub(super) server: ApiServer,
    pub(super) kept: Arc<KeptSnapshots>,
}

impl Controlled {
    /// A kept state; a refusal if there is none of this number.
    pub(super) fn kept(&self, number: u64) -> Result<Snapshot, Refusal> {
        let kept = self.kept.get(number);
        kept.ok_or_else(|| Refusal::absent(&format!("snapshot {number}")))
    }
}
