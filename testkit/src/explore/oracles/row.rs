//! `OracleRow`: the description of an oracle.

use super::facts::Facts;
use crate::explore::outcomes::{EndState, Outcome, Reference, Violation};

/// Description of an oracle.
pub(crate) struct OracleRow {
    /// The name in reports. A failure recurs in another run if that run violates an oracle with the same name.
    pub(crate) name: &'static str,
    pub(crate) looks: Looks,
    /// Returns `true` if a run without faults has all violations of a failing run. Only set for oracles that compare
    /// runs with the reference.
    pub(crate) recurs: Option<fn(&Recurring<'_>) -> bool>,
}

/// A failing run, and a run without faults that may differ from the reference in the same way.
#[derive(Clone, Copy)]
pub(crate) struct Recurring<'a> {
    pub(crate) failed: &'a Outcome,
    /// Set if requests or calls of the failing run failed.
    pub(crate) has_failures: bool,
    /// A run without faults other than the reference.
    pub(crate) faultless: &'a Outcome,
    pub(crate) reference: &'a Reference,
}

/// When an oracle is checked, and its check. The check returns a description of the violation.
pub(crate) enum Looks {
    /// Checked at each message by the gate itself.
    AtMessages,
    /// Checked once, at the end of the scenario.
    AfterScenario(fn(&Facts<'_>) -> Option<String>),
    /// Checked repeatedly after all faults have ended, until the check passes or the time limit is reached.
    UntilRight(fn(&Facts<'_>, &EndState) -> Option<Violation>),
    /// Checked after the restart of a controller that had no work left.
    AfterRestart(fn(&Facts<'_>, &Restarted<'_>) -> Option<String>),
    /// Checked once, at the end of the run.
    AtTheEnd(fn(&Facts<'_>) -> Option<String>),
}

/// A restart of a controller that had no work left.
pub(crate) struct Restarted<'a> {
    /// The controller's name as it appears in points.
    pub(crate) client: &'a str,
    /// State before the restart.
    pub(crate) before: EndState,
    /// Revision before the restart.
    pub(crate) revision: u64,
    /// Number of steps in the trace before the restart.
    pub(crate) steps: usize,
}
