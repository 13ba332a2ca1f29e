//! `Wait`: the present wait of a scenario for the cluster.

use tokio::time::Instant;

/// The present wait of a scenario for the cluster.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    /// Length of the trace and revision at the end of the previous wait.
    pub(super) from: (usize, u64),
    /// Result of the comparison with the reference at this revision.
    pub(super) compared: Option<((u64, u64), bool)>,
    /// Set if the wait has ended early.
    pub(super) is_early: bool,
    /// End of the last wait that lasted until the cluster was quiet.
    pub(super) quiet_at: Option<Instant>,
    /// The same, if it was the last wait of all.
    pub(super) quiet_since: Option<Instant>,
}

impl Wait {
    /// A run that begins at this revision.
    pub(super) fn at(revision: u64) -> Self {
        Self {
            from: (0, revision),
            ..Self::default()
        }
    }
}
