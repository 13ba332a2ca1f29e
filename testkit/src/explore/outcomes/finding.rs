//! `Finding`: a run with a violation, and the run that it is compared with.

use std::sync::Arc;

use super::outcome::{Outcome, Reference};
use super::recorded::Recorded;
use super::violation::Violation;
use crate::explore::plans::Plan;

/// A run with a violation.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) reference: Arc<Reference>,
    pub(crate) outcome: Outcome,
    pub(crate) plan: Plan,
    pub(crate) violation: Violation,
    /// Number of runs of the plan in which this failure occurred, and total number of runs of the plan.
    pub(crate) recurrence: (u32, u32),
    /// Bodies and tracing output of the reference, if it was run again for the report. The outcome contains
    /// the bodies and output of the failing run.
    pub(crate) recorded: Option<Recorded>,
    /// Number of schedules after which the failure was found, including the failing one; 0 for references.
    pub(crate) schedules: u64,
}

impl Finding {
    pub(crate) fn new(reference: &Arc<Reference>, outcome: Outcome, plan: Plan, violation: Violation) -> Box<Self> {
        Box::new(Self {
            reference: Arc::clone(reference),
            outcome,
            plan,
            violation,
            recurrence: (1, 1),
            recorded: None,
            schedules: 0,
        })
    }
}
