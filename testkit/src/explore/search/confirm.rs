//! Confirmation of a failure: it must recur, and is then minimised.

use std::time::Duration;

use super::in_order::Runs;
use super::late_start::depends_on_the_first;
use super::order::Search;
use super::shrink;
use super::shrink::Shrunk;
use crate::explore::oracles::Oracle;
use crate::explore::outcomes::{Finding, Nondeterminism, Outcome, Violation};
use crate::explore::plans::{Plan, given};
use crate::explore::trace::{Step, What};
use crate::virtual_clock;

/// Number of times a failing plan must fail again in order to count.
const CONFIRMATIONS: u32 = 2;

/// Minimum number of equal calls, and of the time they span, for a controller that appears to wait for a clock.
const REPEATED: (usize, Duration) = (20, Duration::from_secs(600));

/// Divisors of the budget for the part that minimising a failure may take, in virtual and in real time, in which a run
/// that fails takes as long as its bound.
const SHRINKING: [u32; 2] = [4, 16];

impl Search<'_> {
    /// Confirms a failure by further runs; returns the smallest plan with the same failure.
    pub(super) fn confirmed(&mut self, plan: &Plan, outcome: &Outcome, violation: Violation) -> Option<Box<Finding>> {
        let Runs {
            config,
            world,
            reference,
            ..
        } = self.runs;
        let recurrence = self.recurrence(plan, &violation);
        if self.runs.is_stopped() {
            return None;
        }
        let (failed, made) = recurrence;
        if !is_certain(recurrence, config.timing.allows_miss) {
            let what = match config.timing.is_real {
                true => format!("{violation}, in {failed} of {made} runs of the same plan"),
                false => format!("{violation}, in one run but not in another run of the same plan"),
            };
            self.nondeterminism.push(Nondeterminism::new(plan, &what));
            if config.timing.is_real && violation.oracle == Oracle::EndState.name() {
                // They would need as many runs again for each further plan.
                reference.ignore(&outcome.unlike);
                self.asides.unsteady.extend(outcome.unlike.iter().cloned());
            }
            return None;
        }
        let mut limit = self.limits.time / SHRINKING[usize::from(config.timing.is_real)];
        if !self.failures.is_empty() && !config.timing.is_real {
            limit = limit.min(self.limits.time.saturating_sub(self.coverage.processor_time));
        }
        let shrunk = shrink::shrink(config, world, reference, plan, violation, limit);
        let Shrunk {
            plan,
            outcome,
            violation,
            reference,
            took,
        } = shrunk;
        self.coverage.processor_time += took;
        if let Some(note) = depends_on_the_first(self.runs, &plan, &outcome) {
            self.asides.first_come.get_or_insert(note);
            return None;
        }
        let has_clock = virtual_clock::is_available(config.has_machine_clock);
        let violation = match repeated(&outcome.trace).filter(|_| !has_clock) {
            Some(repeated) => Violation {
                what: format!(
                    "{repeated}: does it measure time by the machine's clock?\n{}",
                    violation.what
                ),
                ..violation
            },
            None => violation,
        };
        let mut finding = Finding::new(&reference, outcome, plan, violation);
        finding.recurrence = recurrence;
        Some(finding)
    }

    /// Makes more runs of a plan that has failed once. Returns the number of failures and of runs.
    fn recurrence(&mut self, plan: &Plan, violation: &Violation) -> (u32, u32) {
        let fails = |outcome: &Outcome| {
            outcome
                .violations
                .first()
                .is_some_and(|it| it.oracle == violation.oracle)
        };
        let timing = self.runs.config.timing;
        let (mut failed, mut made) = (1, 1);
        if timing.is_real {
            // The runs mostly wait.
            let outcomes = self.runs.at_the_same_time(plan, CONFIRMATIONS);
            failed += outcomes.iter().filter(|it| fails(it)).count() as u32;
            made += CONFIRMATIONS;
        }
        let most = if timing.allows_miss {
            2 * CONFIRMATIONS
        } else {
            CONFIRMATIONS
        };
        let is_decided = |failed: u32, made: u32| match (timing.allows_miss, made - failed) {
            // The decision is certain after two misses, and if the first runs have equal results.
            (true, missed) => missed > 1 || (missed == 0 && made > CONFIRMATIONS),
            (false, missed) => missed > 0,
        };
        while made <= most && !is_decided(failed, made) && !self.runs.is_stopped() {
            let again = self.runs.one(plan);
            self.coverage.processor_time += again.took;
            failed += u32::from(fails(&again));
            made += 1;
        }
        (failed, made)
    }
}

/// Returns `true` if a failure occurred in all runs, or in all but one if that is permitted.
fn is_certain((failed, made): (u32, u32), allows_miss: bool) -> bool {
    failed > CONFIRMATIONS && made - failed <= u32::from(allows_miss)
}

/// Describes a call that a controller repeats until the end of the run, as if it waited for a clock that does not move.
fn repeated(trace: &[Step]) -> Option<String> {
    let is_call = |it: &&Step| matches!(it.what, What::Request(_) | What::Call { .. });
    let last = trace.iter().rev().find(is_call)?;
    let calls = trace.iter().rev().filter(is_call).filter(|it| it.client == last.client);
    let equal: Vec<&Step> = calls.take_while(|it| it.subject() == last.subject()).collect();
    let over = last.at.saturating_sub(equal.last()?.at);
    (equal.len() >= REPEATED.0 && over >= REPEATED.1).then(|| {
        format!(
            "{} equal calls over {} s of virtual time ({} {})",
            equal.len(),
            over.as_secs(),
            given(&last.client),
            last.subject()
        )
    })
}
