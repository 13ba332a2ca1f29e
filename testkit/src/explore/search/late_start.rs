//! Runs without faults in which a controller starts late, or receives several changes of the test at once or one by
//! one. If a failing run ends like one of them, its end depends on the order of arrival or on the observed changes, and
//! the failure is dropped.

use std::sync::Arc;
use std::time::Duration;

use super::context::Runs;
use crate::explore::oracles::Oracle;
use crate::explore::outcomes::{ASSERTIONS, Doing, EndState, Milestone, Outcome, Reference};
use crate::explore::plans::{Action, Plan, given};
use crate::mask::Mask;
use crate::test_cluster::TEST_CLIENT;

/// A start after all steps of the test.
const LAST: Duration = Duration::from_secs(3600);

/// Time for which a controller is cut off before the first change that it misses.
const BEFORE: Duration = Duration::from_millis(1);

/// Maximum number of runs in which a controller receives changes at once.
const MOST: usize = 8;

/// Oracles that compare a run with the reference.
const COMPARING: [&str; 4] = [
    Oracle::EndState.name(),
    Oracle::GeneratedValues.name(),
    Oracle::CreatesAndDeletes.name(),
    Oracle::Rollback.name(),
];

/// Returns a note if a failing run ends like a run without faults: like a run in which the test pauses between changes
/// that it makes at the same time, or, if the test continued during a fault, like a run in which the affected
/// controller starts late, or receives changes made during the fault at once.
pub(crate) fn depends_on_timing(runs: &Runs<'_>, plan: &Plan, failed: &Outcome) -> Option<String> {
    let oracle = failed.violations.first()?.oracle;
    // In real time such a run would take as long.
    if runs.config.timing.is_real || !plan.changes.is_empty() || !plan.skipped.is_empty() {
        return None;
    }
    let is_asserted = oracle == ASSERTIONS && failed.patient_from.is_some();
    let is_end_state = oracle == Oracle::EndState.name();
    let has_pauses = is_end_state && makes_changes_at_once(&runs.reference.outcome);
    let continues = plan.overlaps() && (is_asserted || COMPARING.contains(&oracle));
    if !has_pauses && !continues {
        return None;
    }
    let struck = plan.faults.iter().filter(|it| it.action != Action::EARLY);
    let mut clients: Vec<&str> = struck.filter_map(|it| it.point.split(':').next()).collect();
    clients.dedup();
    for client in clients {
        let made = |times: Faultless| {
            let plan = Plan {
                patient_from: failed.patient_from,
                ..times.plan(client)
            };
            runs.faultless(&plan)
        };
        let is_same = |made: &Outcome| match is_asserted {
            true => made.violations.iter().any(|it| it.oracle == ASSERTIONS),
            false => rested(made).judge(&failed.end, &runs.reference.mask).lines.is_empty(),
        };
        let last = || made(Faultless::Late(LAST));
        if has_pauses && is_observed_one_by_one(runs, failed, &last) {
            return Some(format!(
                "the end state depends on whether changes of the test are observed one by one: it is the same in a run \
                 without faults in which the test pauses between them (to replay: EXPLORE_REPLAY='{plan}')"
            ));
        }
        if !continues {
            continue;
        }
        let last = last();
        let is_late = |time| is_same(&made(Faultless::Late(time)));
        if is_same(&last) || failed.faults_end.is_some_and(is_late) {
            return Some(format!(
                "the end state depends on the order of arrival: it is the same in a run without faults in which {} \
                 starts late (to replay: EXPLORE_REPLAY='{plan}')",
                given(client)
            ));
        }
        let (reference, mask) = (&runs.reference.outcome.end, &runs.reference.mask);
        let may_miss = is_end_state && last.is_complete;
        if !may_miss || !reference.differs_in_histories(&failed.end, rested(&last), mask) {
            continue;
        }
        for missed in missed(failed) {
            let merged = made(Faultless::CutOff(missed));
            if merged.is_complete && reference.differs_like(&failed.end, rested(&merged), mask) {
                let [from, until] = missed.map(|it| it.as_secs_f64());
                return Some(format!(
                    "the end state depends on the changes that {} observes: it is the same in a run without faults in \
                     which {} observes the changes between {from:.3} s and {until:.3} s at once, and its last input \
                     does not determine it (to replay: EXPLORE_REPLAY='{plan}')",
                    given(client),
                    given(client)
                ));
            }
        }
    }
    None
}

/// Returns `true` if the test makes changes at the same time, which controllers may observe at once.
fn makes_changes_at_once(reference: &Outcome) -> bool {
    reference.doings.windows(2).any(|it| it[0].at == it[1].at)
}

/// Returns `true` if a failing run ends like a run without faults in which the test pauses between changes that it
/// makes at the same time. `last` makes a run in which the controller only observes the last input.
fn is_observed_one_by_one(runs: &Runs<'_>, failed: &Outcome, last: &dyn Fn() -> Arc<Outcome>) -> bool {
    let plan = Plan {
        is_spaced: true,
        ..Plan::default()
    };
    let spaced = runs.faultless(&plan);
    let Reference {
        outcome,
        mask,
        milestones,
        ..
    } = &*runs.reference;
    let given: Vec<String> = outcome.doings.iter().map(Doing::key).collect();
    let is_same = |expected: &EndState, spaced: &EndState, mask: &Mask| {
        let has_longer =
            |last: &Outcome| last.is_complete && expected.has_longer_histories(&failed.end, rested(last), mask, &given);
        expected.differs_like(&failed.end, spaced, mask) && has_longer(&last())
    };
    let Some(step) = failed.wrong_step else {
        return is_same(&outcome.end, rested(&spaced), mask);
    };
    let state = |all: &'_ [Milestone]| all.get(step).and_then(|it| it.state.clone());
    match (state(milestones), state(&spaced.milestones)) {
        (Some(expected), Some(spaced)) => is_same(&expected, &spaced, &milestones[step].mask),
        (_, None) | (None, _) => false,
    }
}

/// A run without faults, in which the test does not wait for a controller.
#[derive(Clone, Copy)]
enum Faultless {
    /// The controller starts after this time.
    Late(Duration),
    /// The controller is disconnected between these times.
    CutOff([Duration; 2]),
}

impl Faultless {
    fn plan(self, client: &str) -> Plan {
        let (mut late_start, mut cut_off) = (None, None);
        match self {
            Self::Late(time) => late_start = Some((client.to_owned(), time)),
            Self::CutOff(times) => cut_off = Some((client.to_owned(), times)),
        }
        Plan {
            late_start,
            cut_off,
            ..Plan::single(TEST_CLIENT, Action::EARLY)
        }
    }
}

/// Returns the end state of a run after all timers have fired.
fn rested(made: &Outcome) -> &EndState {
    made.rested.as_ref().unwrap_or(&made.end)
}

/// Returns the times between which the controller of a failing run may have missed changes: each begins with a change
/// of the test, and ends with the faults. The first change is the last one before the first fault.
fn missed(failed: &Outcome) -> Vec<[Duration; 2]> {
    let (Some(begin), Some(end), true) = (failed.faults_begin, failed.faults_end, failed.is_complete) else {
        return Vec::new();
    };
    let changes = || failed.doings.iter().map(|it| it.at);
    let first = changes().filter(|at| *at <= begin).max().unwrap_or_default();
    let mut times: Vec<Duration> = changes().filter(|at| (first..end).contains(at)).collect();
    times.push(first);
    times.sort();
    times.dedup();
    times.truncate(MOST);
    // The cluster was quiet before the change.
    times
        .into_iter()
        .map(|from| [from.saturating_sub(BEFORE), end])
        .collect()
}
