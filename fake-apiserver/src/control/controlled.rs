//! `Controlled`: the state shared by the handlers of the control API.

use std::sync::Arc;

use http::Uri;

use super::answer::{Refusal, number};
use crate::server::ApiServer;
use crate::snapshot::{KeptSnapshots, Snapshot};

/// A server, and its saved states.
#[derive(Clone, Debug)]
pub(super) struct Controlled {
    pub(super) server: ApiServer,
    pub(super) kept: Arc<KeptSnapshots>,
}

impl Controlled {
    /// Returns a saved state. Fails if the number is unknown.
    pub(super) fn kept(&self, number: u64) -> Result<Snapshot, Refusal> {
        let kept = self.kept.get(number);
        kept.ok_or_else(|| Refusal::absent(&format!("snapshot {number}")))
    }

    /// Returns the state after the write with this revision. Fails if the revision is no longer in the history.
    pub(super) fn at(&self, revision: u64) -> Result<Snapshot, Refusal> {
        self.server.snapshot_at(revision).ok_or_else(|| {
            let oldest = self.server.oldest_revision();
            Refusal::gone(&format!(
                "the history begins at resourceVersion {oldest}, later than the requested {revision}"
            ))
        })
    }

    /// Returns the server in the state given by `snapshot=N` or `at=REVISION` in the query; by default the current
    /// state.
    pub(super) fn in_state(&self, uri: &Uri) -> Result<ApiServer, Refusal> {
        let state = match (number(uri, "snapshot")?, number(uri, "at")?) {
            (None, None) => return Ok(self.server.clone()),
            (Some(snapshot), None) => self.kept(snapshot)?,
            (None, Some(revision)) => self.at(revision)?,
            (Some(_), Some(_)) => return Err(Refusal::bad("the parameters snapshot and at cannot be combined")),
        };
        Ok(self.server.of_snapshot(&state))
    }
}
