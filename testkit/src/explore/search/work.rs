//! `Work`: a source of plans that handles the results of their runs, and the `Judge` of its failures.

use std::time::Duration;

use super::confirm::Confirmation;
use crate::explore::outcomes::{Finding, Outcome, Violation};
use crate::explore::plans::Plan;

/// A source of plans that handles the results of their runs.
pub(crate) trait Work {
    /// Data that the source keeps with each plan.
    type About: Clone;

    /// Returns the next plan. After `None`, there may be more plans once other results have arrived.
    fn next(&mut self) -> Option<(Plan, Self::About)>;

    /// Handles a result: in virtual time in the order of [`next`](Self::next), in real time in the order of arrival.
    fn done(&mut self, plan: Plan, about: Self::About, outcome: &Outcome) -> Result<(), Stop>;

    /// Returns the part of the search to which a plan belongs. Failures of earlier parts are confirmed first.
    fn part(&self, _about: &Self::About) -> usize {
        0
    }

    /// Returns `true` if further plans of this part or an earlier one may begin.
    fn is_open(&self, _part: usize) -> bool {
        false
    }

    /// Returns the judge of the source's failures.
    fn judge(&mut self) -> &mut dyn Judge;
}

/// Decides which failures must be confirmed, and handles the results. In virtual time, a failure is confirmed as soon
/// as its result is handled.
pub(crate) trait Judge {
    /// Returns the number of results so far, and the number of results at which the search ends.
    fn made(&self) -> (u64, u64);

    /// Returns `true` if a failure must be confirmed, because a similar failure has not been found yet. Otherwise
    /// counts it.
    fn must_confirm(&mut self, violation: &Violation) -> bool;

    /// Returns the time limit for minimising a failure.
    fn shrinking(&self) -> Duration;

    /// Returns the time until the search ends.
    fn remaining(&self) -> Duration;

    /// Returns `true` if the search ends with the next confirmed failure.
    fn needs_one(&self) -> bool;

    /// Handles a failure that cannot be confirmed in time.
    fn unconfirmed(&mut self, plan: Plan, violation: Violation);

    /// Handles the confirmation of a failure. `made` is the number of results at the time of the failure.
    fn confirmed(&mut self, confirmation: Confirmation, made: u64) -> Result<(), Stop>;
}

/// Reason for the early end of a search.
pub(crate) enum Stop {
    Failed(Box<Finding>),
    Spent,
}

impl Stop {
    /// Returns the failure that ended the search, if any.
    pub(crate) fn failure(self) -> Option<Box<Finding>> {
        match self {
            Self::Failed(finding) => Some(finding),
            Self::Spent => None,
        }
    }
}
