//! `Wait`: state of the current wait of the scenario for the cluster to settle.

use tokio::time::Instant;

/// State of the current wait of the scenario for the cluster to settle.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    /// Length of the trace, and revision of the server, at the end of the previous wait.
    pub(super) from: (usize, u64),
    /// Last comparison with the reference: the revision and the number of changes to external systems, and whether the
    /// states were the same.
    pub(super) compared: Option<((u64, u64), bool)>,
    /// Set if the wait has ended early.
    pub(super) is_early: bool,
    /// End of the last wait that lasted until the cluster was quiet.
    pub(super) quiet_at: Option<Instant>,
    /// End of the previous wait, if it lasted until the cluster was quiet; `None` if it ended early.
    pub(super) quiet_since: Option<Instant>,
}

impl Wait {
    /// Creates the first wait of a run that begins at this revision.
    pub(super) fn at(revision: u64) -> Self {
        Self {
            from: (0, revision),
            ..Self::default()
        }
    }
}
