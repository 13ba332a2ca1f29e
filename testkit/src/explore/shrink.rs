//! A failure made small: fewer faults, shorter windows, a shorter workload. Each step is run again before it counts.

use std::sync::Arc;
use std::time::Duration;

use super::Violation;
use super::baseline::rest;
use super::cluster::World;
use super::plan::Plan;
use super::run::{Config, Outcome, Reference, Role, run};
use super::spec::judged;

/// Windows that are tried, shortest first.
const SHORTER: [Duration; 4] = [
    Duration::from_millis(1),
    Duration::from_secs(1),
    Duration::from_secs(6),
    Duration::from_secs(12),
];

/// The smallest plan that was found to violate the same, and its run.
pub(crate) fn shrink(
    config: &Config,
    world: &World,
    reference: &Arc<Reference>,
    plan: &Plan,
    violation: Violation,
) -> (Plan, Outcome, Violation, Arc<Reference>) {
    let attempt = |plan: &Plan| {
        // A shorter workload has another end.
        let mut own = Arc::clone(reference);
        if !plan.skipped.is_empty() {
            own = Arc::new(shortened_reference(config, world, plan).ok()?);
        }
        let (outcome, reference) = judged(config, world, plan, &own);
        let same = outcome.violations.first().filter(|it| it.oracle == violation.oracle);
        same.cloned().map(|violation| (outcome, violation, reference))
    };
    let mut smallest = plan.clone();
    // Without faults it passes: the reference did, and so did the changes.
    while smallest.faults.len() > 1 {
        let fewer = (0..smallest.faults.len()).find_map(|at| {
            let mut fewer = smallest.clone();
            fewer.faults.remove(at);
            attempt(&fewer).map(|_| fewer)
        });
        match fewer {
            Some(fewer) => smallest = fewer,
            None => break,
        }
    }
    for change in &plan.changes {
        let mut fewer = smallest.clone();
        fewer.changes.retain(|it| it != change);
        if !fewer.is_empty() && attempt(&fewer).is_some() {
            smallest = fewer;
        }
    }
    for at in 0..smallest.faults.len() {
        let action = smallest.faults[at].action;
        let Some(window) = action.window() else { continue };
        let shorter = SHORTER.into_iter().filter(|it| *it < window).find_map(|time| {
            let mut shorter = smallest.clone();
            shorter.faults[at].action = action.lasting(time);
            attempt(&shorter).map(|_| shorter)
        });
        smallest = shorter.unwrap_or(smallest);
    }
    for step in &reference.outcome.steps {
        let mut shorter = smallest.clone();
        shorter.skipped.push(step.clone());
        if attempt(&shorter).is_some() {
            smallest = shorter;
        }
    }
    match attempt(&smallest) {
        Some((outcome, violation, reference)) => (smallest, outcome, violation, reference),
        // The failure was confirmed before, so the plan is reported as it was found.
        None => {
            let (outcome, reference) = judged(config, world, plan, reference);
            (plan.clone(), outcome, violation, reference)
        }
    }
}

/// The reference of a shorter workload, or the run of it that fails without any fault.
pub(crate) fn shortened_reference(config: &Config, world: &World, plan: &Plan) -> Result<Reference, Box<Outcome>> {
    let nothing = Plan {
        skipped: plan.skipped.clone(),
        ..Plan::default()
    };
    let mut first = run(config, world, &nothing, Role::Usual, None);
    if !first.violations.is_empty() {
        return Err(Box::new(first));
    }
    let other = run(config, world, &nothing, Role::Other, None);
    let mut mask = first.end.mask(&other.end, &config.ignored, config.began);
    rest(config, world, &nothing, &config.ignored, (&mut first, &mut mask));
    Ok(Reference {
        outcome: first,
        mask,
        // Skipped steps would have to be distinguished from the others.
        milestones: Arc::default(),
    })
}
