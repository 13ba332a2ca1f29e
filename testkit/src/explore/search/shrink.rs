//! Minimises a failure: fewer faults, shorter durations, and fewer steps of the scenario. A smaller plan only counts if
//! it fails as well.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use crate::explore::outcomes::{Outcome, Reference, Violation};
use crate::explore::plans::Plan;
use crate::explore::runs::{Config, Role, World, early_then_usual, judged, shortened_reference};

/// Shorter durations to try, in ascending order.
const SHORTER: [Duration; 4] = [
    Duration::from_millis(1),
    Duration::from_secs(1),
    Duration::from_secs(6),
    Duration::from_secs(12),
];

/// A minimised failure.
pub(crate) struct Shrunk {
    pub(crate) plan: Plan,
    pub(crate) outcome: Outcome,
    pub(crate) violation: Violation,
    pub(crate) reference: Arc<Reference>,
    /// Processor time of the runs that minimised the failure.
    pub(crate) took: Duration,
}

/// Returns the smallest plan found that violates the same oracle for the same object, within a limit of processor time,
/// and the run of this plan. `known` is a failing run of the original plan, if runs take too long to be repeated.
pub(crate) fn shrink(
    config: &Config,
    world: &World,
    reference: &Arc<Reference>,
    (plan, known): (&Plan, Option<Outcome>),
    violation: Violation,
    limit: Duration,
) -> Shrunk {
    let spent = Cell::new(Duration::ZERO);
    let made = |plan: &Plan, role: Role| {
        // With fewer steps, the scenario has a different end state.
        let mut own = Arc::clone(reference);
        if !plan.skipped.is_empty() {
            let shortened = shortened_reference(config, world, plan, reference);
            spent.set(
                spent.get()
                    + shortened
                        .as_ref()
                        .map_or_else(|failed| failed.took, |it| it.outcome.took),
            );
            own = Arc::new(shortened.ok()?);
        }
        let (outcome, reference) = judged(config, world, (plan, role), &own);
        spent.set(spent.get() + outcome.took);
        let same = outcome.violations.first().filter(|it| it.is_like(&violation));
        same.cloned().map(|violation| (outcome, violation, reference))
    };
    let is_kept = known.is_some();
    let first = known.and_then(|it| {
        let same = it.violations.first().filter(|it| it.is_like(&violation)).cloned()?;
        Some((it, same, Arc::clone(reference)))
    });
    let last = RefCell::new(first);
    let fails = |plan: &Plan, role: Role| {
        let attempted = (spent.get() < limit).then(|| made(plan, role)).flatten();
        let is_failing = attempted.is_some();
        if is_kept && is_failing {
            *last.borrow_mut() = attempted;
        }
        is_failing
    };
    let is_real = config.timing.is_real;
    let least = |role| smallest(plan, &reference.outcome.steps, is_real, |it| fails(it, role));
    // With a smaller plan the state may be slow instead of wrong, but runs that wait for this would take much longer.
    let found = early_then_usual(is_real, |role| {
        let smallest = least(role);
        let run = last.take().or_else(|| made(&smallest, Role::Usual))?;
        Some((smallest, run))
    });
    let (plan, outcome, violation, reference) = match found {
        Some((smallest, (outcome, violation, reference))) => (smallest, outcome, violation, reference),
        // The failure has already been confirmed, so the original plan is reported.
        None => {
            let (outcome, reference) = judged(config, world, (plan, Role::Usual), reference);
            (plan.clone(), outcome, violation, reference)
        }
    };
    Shrunk {
        plan,
        outcome,
        violation,
        reference,
        took: spent.get(),
    }
}

/// Returns the plan with as few faults, changes and steps and as short durations as possible, so that it still fails.
fn smallest(plan: &Plan, steps: &[String], is_real: bool, fails: impl Fn(&Plan) -> bool) -> Plan {
    let mut smallest = plan.clone();
    // Keep the last fault: a plan without faults passes.
    while smallest.faults.len() > 1 {
        let fewer = (0..smallest.faults.len()).map(|at| {
            let mut fewer = smallest.clone();
            fewer.faults.remove(at);
            fewer
        });
        match fewer.collect::<Vec<Plan>>().into_iter().find(&fails) {
            Some(fewer) => smallest = fewer,
            None => break,
        }
    }
    for change in &plan.changes {
        let mut fewer = smallest.clone();
        fewer.changes.retain(|it| it != change);
        if !fewer.is_empty() && fails(&fewer) {
            smallest = fewer;
        }
    }
    for at in 0..smallest.faults.len() {
        let action = smallest.faults[at].action;
        // In real time, faults are short and each attempt takes a long time.
        let window = action.window().filter(|_| !is_real);
        let Some(window) = window else { continue };
        let shorter = SHORTER.into_iter().filter(|it| *it < window).map(|time| {
            let mut shorter = smallest.clone();
            shorter.faults[at].action = action.lasting(time);
            shorter
        });
        smallest = shorter
            .collect::<Vec<Plan>>()
            .into_iter()
            .find(&fails)
            .unwrap_or(smallest);
    }
    for step in steps {
        let mut shorter = smallest.clone();
        shorter.skipped.push(step.clone());
        if fails(&shorter) {
            smallest = shorter;
        }
    }
    smallest
}
