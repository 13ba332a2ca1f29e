//! Confirms a failure by repeating its plan, and minimises it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::context::Runs;
use super::late_start::depends_on_timing;
use super::shrink;
use super::shrink::Shrunk;
use crate::explore::oracles::Oracle;
use crate::explore::outcomes::{Count, Finding, Nondeterminism, Outcome, Violation};
use crate::explore::plans::{Plan, given};
use crate::explore::runs::early_then_usual;
use crate::explore::trace::{Step, What};
use crate::virtual_clock;

/// Number of times that a failing plan must fail again in order to count.
const CONFIRMATIONS: u32 = 2;

/// Minimum number of equal calls of a controller, and minimum time between the first and the last, to assume that it
/// waits for a clock.
const REPEATED: (usize, Duration) = (20, Duration::from_secs(600));

/// Divisors that determine the time for minimising a failure from the budget, in virtual and in real time. The time is
/// shorter in real time, because each failing run takes as long as its time limit.
pub(super) const SHRINKING: [u32; 2] = [4, 16];

/// Result of the confirmation of a failure.
pub(crate) enum Confirmed {
    /// The failure recurs. Contains its smallest plan.
    Failure(Box<Finding>),
    /// The end state depends on the order in which changes arrive. Contains a note for the report.
    FirstCome(String),
    /// The failure does not recur often enough. In real time, the fields that differed from the reference are excluded
    /// from comparisons.
    Unsure(Nondeterminism, BTreeSet<(String, String)>),
    /// The state became correct later. Further runs wait longer.
    Slow,
    /// The search has been stopped.
    Stopped,
}

/// The result of confirming a failure, and the processor time of the runs for the confirmation.
pub(crate) struct Confirmation {
    pub(crate) result: Confirmed,
    pub(crate) took: Duration,
}

/// Confirms the failure of a run by further runs, and minimises it within a time limit.
pub(crate) fn confirm(runs: &Runs<'_>, plan: &Plan, outcome: &Outcome, limit: Duration) -> Confirmation {
    let mut took = Duration::ZERO;
    let result = confirmed(runs, plan, outcome, limit, &mut took);
    Confirmation { result, took }
}

fn confirmed(runs: &Runs<'_>, plan: &Plan, outcome: &Outcome, limit: Duration, took: &mut Duration) -> Confirmed {
    let Runs {
        config,
        world,
        reference,
        ..
    } = runs;
    let Some(violation) = outcome.violations.first().cloned() else {
        return Confirmed::Stopped;
    };
    if let Some(counts) = counts_failures(runs, plan, outcome, took) {
        return beside_counts(runs, plan, &counts, limit, took);
    }
    if let Some(note) = depends_on_timing(runs, plan, outcome) {
        return Confirmed::FirstCome(note);
    }
    let (recurrence, again) = recurrence(runs, plan, &violation, took);
    if runs.is_stopped() {
        return Confirmed::Stopped;
    }
    let (failed, made) = recurrence;
    if outcome.is_hasty && failed == 1 {
        return Confirmed::Slow;
    }
    if !is_certain(recurrence, config.timing.allows_miss) {
        let what = match config.timing.is_real {
            true => format!("{violation}, in {failed} of {made} runs of the same plan"),
            false => format!("{violation}, in one run but not in another run of the same plan"),
        };
        // Without the mask, each further plan that differs in these fields would require as many runs.
        let is_masked = config.timing.is_real && violation.oracle == Oracle::EndState.name();
        let unlike = if is_masked {
            outcome.unlike.clone()
        } else {
            BTreeSet::new()
        };
        return Confirmed::Unsure(Nondeterminism::new(plan, &what), unlike);
    }
    let shrunk = shrink::shrink(config, world, reference, (plan, again), violation, limit);
    let Shrunk {
        plan: smallest,
        outcome,
        violation,
        reference,
        took: shrinking,
    } = shrunk;
    *took += shrinking;
    if let Some(counts) = counts_failures(runs, &smallest, &outcome, took) {
        return beside_counts(runs, plan, &counts, limit, took);
    }
    if let Some(note) = depends_on_timing(runs, &smallest, &outcome) {
        return Confirmed::FirstCome(note);
    }
    let has_clock = virtual_clock::is_available(config.has_machine_clock);
    let violation = match repeated(&outcome.trace).filter(|_| !has_clock) {
        Some(repeated) => Violation {
            what: format!(
                "{repeated}; the controller may measure time with the machine's clock\n{}",
                violation.what
            ),
            ..violation
        },
        None => violation,
    };
    let mut finding = Finding::new(&reference, outcome, smallest, violation);
    finding.recurrence = recurrence;
    Confirmed::Failure(finding)
}

/// Runs a plan again without comparing the counters of its failures (`counts`). The failing run ended at the step with
/// these differences, so it is not known whether later steps differ.
fn beside_counts(runs: &Runs<'_>, plan: &Plan, counts: &[Count], limit: Duration, took: &mut Duration) -> Confirmed {
    let counts: Vec<String> = counts.iter().map(Count::text).collect();
    let mut further = plan.clone();
    further.counted.extend(counts.iter().cloned());
    let outcome = runs.one(&further);
    *took += outcome.took;
    match outcome.violations.is_empty() {
        true => {
            let counts = counts.join("; ");
            Confirmed::FirstCome(format!(
                "records of failures in a status are not compared with the reference: {counts} (to replay: \
                 EXPLORE_REPLAY='{plan}')"
            ))
        }
        false => confirmed(runs, &further, &outcome, limit, took),
    }
}

/// Returns the differences of the failing run of a plan if all of them are counters of failed requests. Such a counter
/// is greater in a run with more failures. It does not change if the requests are refused instead, because it must not
/// count effects of requests that were executed although they failed.
fn counts_failures(runs: &Runs<'_>, plan: &Plan, outcome: &Outcome, took: &mut Duration) -> Option<Vec<Count>> {
    let is_end_state = outcome.violations.first()?.oracle == Oracle::EndState.name();
    let may_count = is_end_state && !outcome.failure_counts.is_empty() && plan.has_failures();
    if !may_count || runs.config.timing.is_real {
        return None;
    }
    let mut made = |plan: &Plan| {
        let made = runs.early(plan);
        *took += made.took;
        (made.wrong_step, made.failure_counts)
    };
    let unexecuted = plan.unexecuted();
    if unexecuted != *plan {
        let (step, counts) = made(&unexecuted);
        if step != outcome.wrong_step || !Count::are_equal(&counts, &outcome.failure_counts) {
            return None;
        }
    }
    let have_grown = unexecuted.with_more_failures().iter().any(|more| {
        let (step, more) = made(more);
        step == outcome.wrong_step && Count::have_grown(&more, &outcome.failure_counts)
    });
    have_grown.then(|| outcome.failure_counts.clone())
}

/// Repeats a plan that has failed once. Returns the number of failures and the number of runs; in real time also one of
/// the failing runs.
fn recurrence(
    runs: &Runs<'_>,
    plan: &Plan,
    violation: &Violation,
    took: &mut Duration,
) -> ((u32, u32), Option<Outcome>) {
    let fails = |outcome: &Outcome| outcome.violations.first().is_some_and(|it| it.is_like(violation));
    let timing = runs.config.timing;
    let (mut failed, mut made, mut failing) = (1, 1, None);
    let most = if timing.allows_miss {
        2 * CONFIRMATIONS
    } else {
        CONFIRMATIONS
    };
    let is_decided = |failed: u32, made: u32| match (timing.allows_miss, made - failed) {
        // The result is certain after two runs without the failure, or if all of the first runs fail.
        (true, missed) => missed > 1 || (missed == 0 && made > CONFIRMATIONS),
        (false, missed) => missed > 0,
    };
    while made <= most && !is_decided(failed, made) && !runs.is_stopped() {
        if timing.is_real {
            // These runs spend most of their time waiting, so execute them concurrently.
            let outcomes = runs.at_the_same_time(plan, CONFIRMATIONS);
            failed += outcomes.iter().filter(|it| fails(it)).count() as u32;
            made += CONFIRMATIONS;
            failing = failing.or_else(|| outcomes.into_iter().find(fails));
            continue;
        }
        // A failure in a run that may end early is sufficient. If there is none, only a usual run waits long enough.
        let again = early_then_usual(timing.is_real, |role| {
            let again = runs.made(plan, role);
            *took += again.took;
            fails(&again).then_some(())
        });
        failed += u32::from(again.is_some());
        made += 1;
    }
    ((failed, made), failing)
}

/// Returns `true` if a failure occurred in all runs, or in all but one run if this is permitted.
fn is_certain((failed, made): (u32, u32), allows_miss: bool) -> bool {
    failed > CONFIRMATIONS && made - failed <= u32::from(allows_miss)
}

/// Describes a call that a controller repeats until the end of the run, as if it waited for a clock that does not
/// advance.
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
