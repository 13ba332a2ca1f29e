//! `Failures`: the failures that a search has found so far, and the number of schedules after which it ends.

use std::collections::BTreeSet;

use crate::explore::outcomes::{Finding, Violation};

/// Maximum number of failures in a report.
pub(crate) const FAILURES: usize = 3;

/// Minimum and maximum number of schedules that are tried after the first failure to find more failures. Within these
/// limits, the number equals the number of schedules before the first failure.
const MORE_SCHEDULES: (u64, u64) = (10, 100);

/// Failures that violate different oracles, or concern different resources or fields.
#[derive(Debug)]
pub(crate) struct Failures {
    found: Vec<Finding>,
    /// Topics of the failures that have been found.
    known: BTreeSet<String>,
    /// Number of failures after which the search ends.
    most: usize,
    /// Set if the search ends soon after its first failure.
    ends_soon: bool,
    /// Number of schedules after which the search ends.
    until: Option<u64>,
}

impl Default for Failures {
    /// Creates an empty list of failures, for a search that ends soon after its first failure.
    fn default() -> Self {
        Self {
            ends_soon: true,
            ..Self::at_most(FAILURES)
        }
    }
}

impl Failures {
    /// Creates an empty list of failures, for a search that ends after this number of failures or at its limits.
    pub(crate) fn at_most(most: usize) -> Self {
        Self {
            found: Vec::new(),
            known: BTreeSet::new(),
            most,
            ends_soon: false,
            until: None,
        }
    }

    /// Returns `true` if a failure with the same topic has been found.
    pub(crate) fn has(&self, violation: &Violation) -> bool {
        self.known.contains(&violation.topic())
    }

    /// Adds a failure that was found after this number of schedules, unless a similar failure or the maximum number of
    /// failures has been found. Returns `true` if it is added.
    pub(crate) fn add(&mut self, mut finding: Finding, schedules: u64) -> bool {
        let is_new = self.known.insert(finding.violation.topic()) && self.found.len() < self.most;
        if is_new {
            let (least, most) = MORE_SCHEDULES;
            if self.ends_soon {
                self.until.get_or_insert(schedules + schedules.clamp(least, most));
            }
            finding.schedules = schedules;
            self.found.push(finding);
        }
        is_new
    }

    pub(crate) fn count(&self) -> usize {
        self.found.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns `true` if the search for failures ends after this number of schedules.
    pub(crate) fn are_enough(&self, schedules: u64) -> bool {
        self.found.len() >= self.most || self.until.is_some_and(|until| schedules >= until)
    }

    /// Returns `true` if one more failure ends the search.
    pub(crate) fn needs_one(&self) -> bool {
        self.found.len() + 1 >= self.most
    }

    /// Returns the failures, the most certain one first.
    pub(crate) fn into_sorted(self) -> Vec<Finding> {
        let mut found = self.found;
        found.sort_by_key(|it| (it.violation.doubt(it.plan.overlaps()), it.plan.faults.len()));
        found
    }
}
