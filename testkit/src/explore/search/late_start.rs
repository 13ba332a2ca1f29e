//! Runs without faults in which a controller starts late, or receives several changes of the test at once. If a failing
//! run ends like one of them, its end depends on the order of arrival or on the observed changes, and the failure is
//! dropped.

use std::time::Duration;

use super::context::Runs;
use crate::explore::oracles::Oracle;
use crate::explore::outcomes::{ASSERTIONS, EndState, Outcome};
use crate::explore::plans::{Action, Plan, given};
use crate::explore::runs::{Role, run};
use crate::test_cluster::TEST_CLIENT;

/// A start after all steps of the test.
const LAST: Duration = Duration::from_secs(3600);

/// Time for which a controller is cut off before the first change that it misses.
const BEFORE: Duration = Duration::from_millis(1);

/// Oracles that compare a run with the reference.
const COMPARING: [&str; 4] = [
    Oracle::EndState.name(),
    Oracle::GeneratedValues.name(),
    Oracle::CreatesAndDeletes.name(),
    Oracle::Rollback.name(),
];

/// Returns a note if a failing run, in which the test continued during a fault, ends like a run without faults: like a
/// run in which the affected controller starts late, or like one in which it receives the changes made during the fault
/// at once, unless the last change requires the missing results.
pub(crate) fn depends_on_the_first(runs: &Runs<'_>, plan: &Plan, failed: &Outcome) -> Option<String> {
    let oracle = failed.violations.first()?.oracle;
    if runs.config.timing.is_real {
        // A late start would take as long.
        return None;
    }
    let is_search = plan.overlaps() && plan.changes.is_empty() && plan.skipped.is_empty();
    let is_asserted = oracle == ASSERTIONS && failed.patient_from.is_some();
    if !is_search || !(is_asserted || COMPARING.contains(&oracle)) {
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
            run(runs.config, runs.world, &plan, Role::Resting, None)
        };
        let is_same = |made: &Outcome| match is_asserted {
            true => made.violations.iter().any(|it| it.oracle == ASSERTIONS),
            false => rested(made).judge(&failed.end, &runs.reference.mask).lines.is_empty(),
        };
        let last = made(Faultless::Late(LAST));
        let is_late = |time| is_same(&made(Faultless::Late(time)));
        if is_same(&last) || failed.faults_end.is_some_and(is_late) {
            return Some(format!(
                "the end state depends on the order of arrival: it is the same in a run without faults in which {} \
                 starts late (to replay: EXPLORE_REPLAY='{plan}')",
                given(client)
            ));
        }
        if let Some(missed) = missed(failed).filter(|_| oracle == Oracle::EndState.name() && last.is_complete) {
            let merged = made(Faultless::CutOff(missed));
            let reference = &runs.reference.outcome.end;
            let others = [&merged, &last].map(rested);
            if merged.is_complete && reference.lacks_the_same(&failed.end, &runs.reference.mask, others) {
                let [from, until] = missed.map(|it| it.as_secs_f64());
                return Some(format!(
                    "the end state depends on the changes that {} observes: it lacks the same objects in a run without \
                     faults in which {} observes the changes between {from:.3} s and {until:.3} s at once, and its \
                     last input does not require them (to replay: EXPLORE_REPLAY='{plan}')",
                    given(client),
                    given(client)
                ));
            }
        }
    }
    None
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

/// Returns the time in which the controller of a failing run may have missed changes: from the last change of the test
/// before the first fault to the end of the faults.
fn missed(failed: &Outcome) -> Option<[Duration; 2]> {
    let (begin, end) = (failed.faults_begin?, failed.faults_end?);
    let changes = failed.doings.iter().map(|it| it.at).filter(|at| *at <= begin);
    let from = changes.max().unwrap_or_default();
    // The cluster was quiet before the change.
    failed.is_complete.then(|| [from.saturating_sub(BEFORE), end])
}
