//! Compares a failing run with runs without faults in which a controller starts late, receives several changes of the
//! test together or one by one, or observes the objects of the test one at a time in a different order. If such a run
//! has the same violations, they depend on the order of arrival or on the observed changes, and the failure is dropped.
//! With several controllers, each group of related objects is compared separately.

use std::sync::Arc;
use std::time::Duration;

use super::arrivals::orders;
use super::context::Runs;
use crate::explore::oracles::{Oracle, Recurring};
use crate::explore::outcomes::{ASSERTIONS, Doing, EndState, Milestone, Outcome, Reference};
use crate::explore::plans::{Action, Plan, given};
use crate::mask::Mask;
use crate::test_cluster::TEST_CLIENT;

/// Delay after which a controller starts later than all steps of the test.
const LAST: Duration = Duration::from_secs(3600);

/// Delay after which other controllers have begun their first work, but the first wait of the test has not ended.
const SOON: Duration = Duration::from_secs(1);

/// Time between the disconnection of a controller and the first change that it misses.
const BEFORE: Duration = Duration::from_millis(1);

/// Maximum number of runs in which a controller receives several changes together, and of runs in which objects arrive
/// in different orders.
const MOST: usize = 8;

/// Returns a note if one of these runs without faults has the violations of a failing run: (1) the test pauses between
/// changes that it makes at the same time; (2) the affected controller starts late, or receives the changes made during
/// the fault together; (3) with several controllers, a different controller does some of the work first; or (4)
/// controllers observe the objects that the test created one at a time, in a different order. The runs of the second
/// kind are only executed if the test continued during a fault, or advanced the clock to its next change after a fault
/// without waiting for the cluster.
pub(crate) fn depends_on_timing(runs: &Runs<'_>, plan: &Plan, failed: &Outcome) -> Option<String> {
    let oracle = failed.violations.first()?.oracle;
    // In real time, these runs would take as long as the delays.
    if runs.config.timing.is_real || !plan.changes.is_empty() || !plan.skipped.is_empty() {
        return None;
    }
    let is_asserted = oracle == ASSERTIONS && failed.patient_from.is_some();
    let is_end_state = oracle == Oracle::EndState.name();
    let has_pauses = is_end_state && makes_changes_at_once(&runs.reference.outcome);
    let is_unawaited = is_end_state && failed.faults_begin.is_some_and(|it| failed.next_change(it).is_some());
    let continues = is_unawaited || plan.overlaps() && (is_asserted || Oracle::recurs(oracle).is_some());
    let has_rivals = is_end_state && runs.reference.outcome.controllers.len() > 1;
    let struck = plan.faults.iter().filter(|it| it.action != Action::EARLY);
    let mut clients: Vec<&str> = struck.filter_map(|it| it.point.split(':').next()).collect();
    clients.dedup();
    let dependence = clients.into_iter().find_map(|client| {
        let suspect = Suspect {
            runs,
            failed,
            has_failures: plan.has_failures(),
            client,
            oracle,
            is_asserted,
        };
        let pauses = || has_pauses.then(|| suspect.pauses()).flatten();
        let arrives = || continues.then(|| suspect.arrives()).flatten();
        let merges = || (continues && is_end_state).then(|| suspect.merges()).flatten();
        let rivals = || has_rivals.then(|| suspect.rivals()).flatten();
        let ordered = || is_end_state.then(|| suspect.ordered(plan)).flatten();
        pauses()
            .or_else(arrives)
            .or_else(merges)
            .or_else(rivals)
            .or_else(ordered)
    });
    dependence.map(|it| format!("the failure depends on {it} (to replay: EXPLORE_REPLAY='{plan}')"))
}

/// Returns `true` if the test makes changes at the same time, which controllers may observe together.
fn makes_changes_at_once(reference: &Outcome) -> bool {
    reference.doings.windows(2).any(|it| it[0].at == it[1].at)
}

/// A failing run, and a controller that its faults affected.
#[derive(Clone, Copy)]
struct Suspect<'a> {
    runs: &'a Runs<'a>,
    failed: &'a Outcome,
    /// Set if the plan makes requests or calls fail.
    has_failures: bool,
    client: &'a str,
    /// The oracle that the failing run violates.
    oracle: &'static str,
    /// Set if an assertion of the scenario failed.
    is_asserted: bool,
}

impl Suspect<'_> {
    fn made(&self, times: Faultless) -> Arc<Outcome> {
        let plan = Plan {
            patient_from: self.failed.patient_from,
            ..times.plan(self.client)
        };
        self.runs.faultless(&plan)
    }

    /// Returns `true` if a run without faults has the violations of the failing run. An equal end state is not
    /// sufficient: a field that returned to an earlier value may have been repaired since.
    fn is_same(&self, made: &Outcome) -> bool {
        if self.is_asserted {
            return made.violations.iter().any(|it| it.oracle == ASSERTIONS);
        }
        let runs = Recurring {
            failed: self.failed,
            has_failures: self.has_failures,
            faultless: made,
            reference: &self.runs.reference,
        };
        Oracle::recurs(self.oracle).is_some_and(|recurs| recurs(&runs))
    }

    /// Compares the failing run with a run in which the test pauses between changes.
    fn pauses(&self) -> Option<String> {
        let plan = Plan {
            is_spaced: true,
            ..Plan::default()
        };
        let spaced = self.runs.faultless(&plan);
        let given: Vec<String> = self.runs.reference.outcome.doings.iter().map(Doing::key).collect();
        let is_same = self.is_where_it_failed(&spaced, |expected, spaced, mask| {
            let last = self.made(Faultless::Late(LAST));
            let is_like = expected.differs_like(&self.failed.end, spaced, mask);
            is_like && last.is_complete && expected.has_longer_histories(&self.failed.end, last.at_rest(), mask, &given)
        });
        is_same.then(|| {
            "whether changes of the test are observed one by one: the end state is the same in a run without faults in \
             which the test pauses between changes"
                .to_owned()
        })
    }

    /// Compares the failing run with runs in which the controller starts late.
    fn arrives(&self) -> Option<String> {
        let is_late = |time| self.is_same(&self.made(Faultless::Late(time)));
        (is_late(LAST) || self.failed.faults_end.is_some_and(is_late)).then(|| {
            format!(
                "the order in which changes arrive: the violations are the same in a run without faults in which {} \
                 starts late",
                given(self.client)
            )
        })
    }

    /// Compares the failing run with runs in which the controller receives several changes together.
    fn merges(&self) -> Option<String> {
        let Reference { outcome, mask, .. } = &*self.runs.reference;
        let late: Vec<Arc<Outcome>> = self.late_starts().collect();
        let ends: Vec<&EndState> = late.iter().map(|it| it.at_rest()).collect();
        if late.iter().any(|it| !it.is_complete) || !outcome.end.differs_in_histories(&self.failed.end, &ends, mask) {
            return None;
        }
        let missed = missed(self.failed).into_iter().find(|missed| {
            let merged = self.made(Faultless::CutOff(*missed));
            merged.is_complete && outcome.end.differs_like(&self.failed.end, merged.at_rest(), mask)
        });
        let [from, until] = missed?.map(|it| it.as_secs_f64());
        let client = given(self.client);
        Some(format!(
            "the changes that {client} observes: the end state is the same in a run without faults in which {client} \
             observes the changes between {from:.3} s and {until:.3} s together, and the last input of {client} does \
             not determine the end state"
        ))
    }

    /// Executes runs in which the controller starts after all steps of the test, or after the steps that precede one of
    /// the test's waits (except for the first wait).
    fn late_starts(&self) -> impl Iterator<Item = Arc<Outcome>> {
        let reference = &self.runs.reference.outcome;
        // Waits for a condition have no recorded times, so the times belong to other waits if there are any.
        let times = match reference.settled_times.len() == reference.waited {
            true => reference.settled_times.as_slice(),
            false => &[],
        };
        let waits = times.iter().take(times.len().saturating_sub(1).min(MOST)).enumerate();
        let waits = waits.map(|(nth, time)| (Some(nth + 2), *time + SOON));
        std::iter::once((None, LAST)).chain(waits).map(|(patient_from, time)| {
            self.runs.faultless(&Plan {
                patient_from,
                ..Faultless::Late(time).plan(self.client)
            })
        })
    }

    /// Compares groups of related objects in the failing run and in a run in which the other controllers start first.
    fn rivals(&self) -> Option<String> {
        let late = self.made(Faultless::Late(SOON));
        let is_same = self.is_where_it_failed(&late, |expected, late, mask| {
            expected.differs_in_groups_like(&self.failed.end, late, mask)
        });
        is_same.then(|| {
            format!(
                "the order in which controllers arrive: each group of related objects is the same as in the reference, \
                 or in a run without faults in which {} starts {SOON:?} later",
                given(self.client)
            )
        })
    }

    /// Compares the failing run with runs in which controllers observe the objects of the test one at a time, in
    /// different orders. A failure in which two objects were handled at the same time is not the same as such a run.
    fn ordered(&self, failing: &Plan) -> Option<String> {
        let orders = orders(self.failed).into_iter().take(MOST);
        let mut alike = orders.filter(|arrivals| {
            // If the failing run waited for the end of its faults, the state at a step includes all arrivals.
            let plan = match failing.overlaps() {
                true => Plan::single(TEST_CLIENT, Action::EARLY),
                false => Plan::default(),
            };
            let made = self.runs.faultless(&Plan {
                arrivals: arrivals.clone(),
                patient_from: self.failed.patient_from,
                ..plan
            });
            let is_valid = made.is_complete && made.violations.is_empty();
            is_valid
                && self.is_where_it_failed(&made, |expected, made, mask| {
                    let is_same = made.judge(&self.failed.end, mask).lines.is_empty();
                    is_same && !expected.has_other_order_of_items(&self.failed.end, mask)
                })
        });
        let order = alike.next()?;
        Some(format!(
            "the order in which objects arrive: the end state is the same in a run without faults in which controllers \
             observe these objects one at a time, in this order: {}",
            order.join(", ")
        ))
    }

    /// Compares the reference with a different run, at the step at which the failing run ended.
    fn is_where_it_failed(&self, other: &Outcome, is_same: impl Fn(&EndState, &EndState, &Mask) -> bool) -> bool {
        let Reference {
            outcome,
            mask,
            milestones,
            ..
        } = &*self.runs.reference;
        let Some(step) = self.failed.wrong_step else {
            return is_same(&outcome.end, other.at_rest(), mask);
        };
        let state = |all: &'_ [Milestone]| all.get(step).and_then(|it| it.state.clone());
        match (state(milestones), state(&other.milestones)) {
            (Some(expected), Some(other)) => is_same(&expected, &other, &milestones[step].mask),
            (_, None) | (None, _) => false,
        }
    }
}

/// A run without faults in which a controller starts late or is disconnected.
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

/// Returns periods in which the controller of a failing run may have missed changes. Each period begins directly before
/// a change of the test and ends when the faults end. The earliest period begins with the last change before the first
/// fault.
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
    // The cluster had been quiet before the change.
    times
        .into_iter()
        .map(|from| [from.saturating_sub(BEFORE), end])
        .collect()
}
