//! `Search`: the state of a search, which judges the results of its runs.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::asides::Asides;
use super::candidates::Candidate;
use super::confirm::{Confirmation, Confirmed, SHRINKING, confirm};
use super::context::Runs;
use super::coverage::Coverage;
use super::failures::Failures;
use super::shard::Shard;
use super::work::{Judge, Stop};
use crate::explore::machine::WallClock;
use crate::explore::outcomes::{Nondeterminism, Outcome, Violation};
use crate::explore::plans::{Fault, Faults, Kind, Plan};

/// Limits at which a search stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum processor time of all runs; if there is a `clock`, maximum time since its start.
    pub(crate) time: Duration,
    pub(crate) clock: Option<WallClock>,
    pub(crate) schedules: u64,
}

/// A search in progress.
pub(crate) struct Search<'a> {
    pub(crate) runs: &'a Runs<'a>,
    pub(crate) faults: Faults,
    pub(crate) limits: Limits,
    /// The part of the search that this process runs.
    pub(crate) shard: Shard,
    pub(crate) seed: u64,
    /// Called after each run with the current coverage and the number of failures found so far.
    pub(crate) progress: &'a mut dyn FnMut(&Coverage, usize),
    pub(crate) coverage: Coverage,
    pub(crate) seen: BTreeSet<u64>,
    pub(crate) held: BTreeSet<usize>,
    pub(crate) nondeterminism: Vec<Nondeterminism>,
    /// Set if there were too many pairs or orders to try all of them.
    pub(crate) is_cut: bool,
    /// Hashes of the plans of swarms. A plan is skipped if its hash collides with the hash of another plan.
    pub(crate) known: HashSet<u64>,
    pub(crate) asides: Asides,
    pub(crate) kinds: Kinds,
    pub(crate) failures: Failures,
    /// Coverage at the time of the first failure, which the report contains.
    pub(crate) coverage_at_failure: Option<Coverage>,
}

/// Kinds of single faults that are possible, and kinds that were tried.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    pub(super) possible: BTreeSet<Kind>,
    pub(super) tried: BTreeSet<Kind>,
}

/// A completed run, from which further plans are derived.
pub(super) struct Tried {
    pub(super) plan: Plan,
    pub(super) kind: Kind,
    pub(super) rank: u8,
    pub(super) is_repeat: bool,
    pub(super) next: Vec<Candidate>,
}

impl Search<'_> {
    /// Lists the faults that are possible from a position in the trace.
    pub(super) fn candidates(&self, outcome: &Outcome, from: usize) -> Vec<Candidate> {
        self.runs.candidates(outcome, from, self.faults)
    }

    /// Returns the names of the kinds of single faults that are possible but were not tried.
    pub(crate) fn untried_kinds(&self) -> Vec<&'static str> {
        let untried = self.kinds.possible.difference(&self.kinds.tried);
        untried.map(|it| Faults::name(*it)).collect()
    }

    /// Handles the completed run of a single fault.
    pub(super) fn single(&mut self, plan: Plan, candidate: &Candidate, outcome: &Outcome, most: usize) -> Tried {
        self.coverage.singles.0 += 1;
        self.kinds.tried.insert(candidate.kind());
        let mut continued = self.continued(plan, candidate, outcome);
        // Candidates are sorted, the most likely first.
        self.is_cut |= continued.next.len() > most;
        continued.next.truncate(most);
        continued.next.shrink_to_fit();
        continued
    }

    /// Judges the outcome of a run. Returns `true` if it reached a new state.
    pub(super) fn accept(&mut self, plan: &Plan, outcome: &Outcome) -> Result<bool, Stop> {
        if self.runs.is_stopped() {
            return Err(Stop::Spent);
        }
        let before = self.seen.len();
        self.coverage.schedules += 1;
        self.coverage.messages += outcome.messages;
        self.coverage.processor_time += outcome.took;
        self.held.extend(&outcome.held);
        self.asides.take(plan, outcome);
        self.coverage.unjudged += u64::from(outcome.is_unjudged);
        self.seen.extend(&outcome.coverage);
        self.coverage.states = self.seen.len() as u64;
        // In real time, failures are confirmed separately, while further runs are in progress.
        let violation = outcome.violations.first().filter(|_| !self.runs.config.timing.is_real);
        if let Some(violation) = violation
            && self.must_confirm(violation)
        {
            let confirmation = confirm(self.runs, plan, outcome, self.shrinking());
            self.conclude(confirmation, self.coverage.schedules);
        }
        (self.progress)(&self.coverage, self.failures.count());
        Ok(self.seen.len() > before)
    }

    /// Handles the confirmation of a failure that was found after this number of runs.
    fn conclude(&mut self, confirmation: Confirmation, made: u64) {
        self.coverage.processor_time += confirmation.took;
        match confirmation.result {
            Confirmed::Failure(failure) => {
                // The smallest plan may fail in the same way as a known failure.
                if !self.failures.add(*failure, made) {
                    self.asides.repeated += 1;
                }
                self.coverage_at_failure.get_or_insert_with(|| self.coverage.clone());
            }
            Confirmed::FirstCome(note) => {
                self.asides.first_come.get_or_insert(note);
            }
            Confirmed::Unsure(nondeterminism, unlike) => {
                self.nondeterminism.push(nondeterminism);
                self.runs.reference.ignore(&unlike);
                self.asides.unsteady.extend(unlike);
            }
            Confirmed::Slow => self.runs.config.is_patient.store(true, Ordering::Relaxed),
            Confirmed::Stopped => {}
        }
    }

    pub(super) fn is_spent(&self) -> Result<(), Stop> {
        let Limits { time, clock, schedules } = self.limits;
        let spent = clock.map_or(self.coverage.processor_time, WallClock::elapsed);
        let made = self.coverage.schedules;
        match made >= schedules || spent >= time || self.failures.are_enough(made) {
            true => Err(Stop::Spent),
            false => Ok(()),
        }
    }

    /// Lists the faults that are possible after the faults of a plan.
    pub(super) fn continued(&self, plan: Plan, last_fault: &Candidate, outcome: &Outcome) -> Tried {
        let last = plan.faults.last().map(|it| it.point.as_str()).unwrap_or_default();
        let from = outcome.trace.iter().position(|step| step.point == last);
        let next = match from {
            // A clock that is wrong from the beginning can be combined with all faults.
            None if last_fault.action.fault == Fault::Skew => self.candidates(outcome, 1),
            Some(at) => self.candidates(outcome, at + 1),
            None => Vec::new(),
        };
        Tried {
            plan,
            kind: last_fault.action.kind(),
            rank: last_fault.rank,
            is_repeat: last_fault.is_repeat,
            next,
        }
    }
}

impl Judge for Search<'_> {
    fn made(&self) -> (u64, u64) {
        (self.coverage.schedules, self.limits.schedules)
    }

    fn must_confirm(&mut self, violation: &Violation) -> bool {
        let is_known = self.failures.has(violation);
        self.asides.repeated += u64::from(is_known);
        !is_known
    }

    fn shrinking(&self) -> Duration {
        let Limits { time, .. } = self.limits;
        let is_real = self.runs.config.timing.is_real;
        let limit = time / SHRINKING[usize::from(is_real)];
        match (is_real, self.failures.is_empty()) {
            (false, true) => limit,
            (true, _) | (false, false) => limit.min(self.remaining()),
        }
    }

    fn remaining(&self) -> Duration {
        let Limits { time, clock, .. } = self.limits;
        let spent = clock.map_or(self.coverage.processor_time, WallClock::elapsed);
        time.saturating_sub(spent)
    }

    fn needs_one(&self) -> bool {
        self.failures.needs_one()
    }

    fn unconfirmed(&mut self, plan: Plan, violation: Violation) {
        if !self.failures.has(&violation) {
            self.asides.unconfirmed.push((plan, violation));
        }
    }

    fn confirmed(&mut self, confirmation: Confirmation, made: u64) -> Result<(), Stop> {
        self.conclude(confirmation, made);
        self.is_spent()
    }
}
