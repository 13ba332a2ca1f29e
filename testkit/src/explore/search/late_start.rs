//! Runs without faults in which a controller starts late. If a failing run ends like one of them, its end depends on
//! the order of arrival, and the failure is dropped.

use std::time::Duration;

use super::context::Runs;
use crate::explore::oracles::Oracle;
use crate::explore::outcomes::{ASSERTIONS, Outcome};
use crate::explore::plans::{Action, Plan, given};
use crate::explore::runs::{Role, run};
use crate::test_cluster::TEST_CLIENT;

/// A start after all steps of the test.
const LAST: Duration = Duration::from_secs(3600);

/// Oracles that compare a run with the reference.
const COMPARING: [&str; 4] = [
    Oracle::EndState.name(),
    Oracle::GeneratedValues.name(),
    Oracle::CreatesAndDeletes.name(),
    Oracle::Rollback.name(),
];

/// Returns a note if a failing run, in which the test continued during a fault, ends like a run in which the struck
/// controller starts late.
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
    let times = failed.faults_end.into_iter().chain([LAST]);
    for (client, time) in clients
        .into_iter()
        .flat_map(|client| times.clone().map(move |time| (client, time)))
    {
        let late = Plan {
            late_start: Some((client.to_owned(), time)),
            patient_from: failed.patient_from,
            ..Plan::single(TEST_CLIENT, Action::EARLY)
        };
        let made = run(runs.config, runs.world, &late, Role::Resting, None);
        let end = made.rested.as_ref().unwrap_or(&made.end);
        let is_same = match is_asserted {
            true => made.violations.iter().any(|it| it.oracle == ASSERTIONS),
            false => end.compare(&failed.end, &runs.reference.mask).is_empty(),
        };
        if is_same {
            return Some(format!(
                "the end state depends on the order of arrival: it is the same in a run without faults in which {} \
                 starts late (to replay: EXPLORE_REPLAY='{plan}')",
                given(client)
            ));
        }
    }
    None
}
