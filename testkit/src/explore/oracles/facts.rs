//! `Facts`: the input of oracles.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::explore::gate::Gate;
use crate::explore::outcomes::{EndState, Reference, Returned};
use crate::explore::specs::Spec;
use crate::test_cluster::TestCluster;

/// The data of a run that oracles check.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) cluster: &'a TestCluster,
    /// The gate of the run, which has recorded its messages and contains its plan.
    pub(crate) gate: &'a Gate,
    /// The run without faults; `None` if this is the reference run.
    pub(crate) reference: Option<&'a Reference>,
    /// The explored spec, if the exploration changes one.
    pub(crate) spec: Option<&'a Spec>,
    /// Fields that returned to an earlier value. Set at the end of the run.
    pub(crate) returned: Option<&'a Returned>,
    /// Time from the last fault within which the end state must be correct.
    pub(crate) within: Duration,
}

impl Facts<'_> {
    /// Returns the server's time of day at the start of the run and now.
    pub(crate) fn times(&self) -> [Timestamp; 2] {
        let now = self.gate.server.now();
        [
            now - SignedDuration::try_from(self.gate.started.elapsed()).unwrap_or_default(),
            now,
        ]
    }

    /// Reads the current state.
    pub(crate) fn end_state(&self) -> EndState {
        let state = EndState::of(&self.gate.server, self.gate.base, &self.cluster.work);
        state.with_externals(self.cluster.externals.contents())
    }
}
