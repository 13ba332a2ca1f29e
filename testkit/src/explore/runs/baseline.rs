//! The reference: runs without faults, and their common end state.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use super::config::{Config, Role};
use super::run::run;
use super::world::World;
use crate::explore::outcomes::{EndState, Finding, Generated, Milestone, Nondeterminism, Outcome, Reference};
use crate::explore::plans::Plan;
use crate::mask::{Mask, Upcoming};

/// Creates the reference from runs without faults: two equal runs, a run with different uids, random numbers and time
/// of day, and runs in which more time passes.
pub(crate) fn reference(config: &Config, world: &World) -> Result<(Reference, Vec<Nondeterminism>), Box<Finding>> {
    let nothing = Plan::default();
    let (mut first, again, nondeterminism) = twice(config, world, &nothing)?;
    let mut other = run(config, world, &nothing, Role::Other, None);
    if let Some(violation) = other.violations.first() {
        first.notes.push(format!(
            "a run without faults fails with different uids, random numbers and times of day, so values that depend on \
             them are compared: {violation}"
        ));
    }
    other.end = end_of(&other, &first);
    let mut mask = first.mask(&other, &config.ignored, config.began);
    mask.add(first.mask(&again, &[], config.began));
    first.notes.extend(other.notes);
    rest(config, world, &nothing, &config.ignored, (&mut first, &mut mask));
    let mut milestones = std::mem::take(&mut first.milestones);
    for others in [again.milestones, other.milestones, waited(config, world)] {
        let mut others = others.into_iter();
        let common = milestones.into_iter();
        milestones = common
            .map(|it| Milestone::common(it, others.next(), &config.ignored, config.began))
            .collect();
    }
    let reference = Reference {
        plan: nothing,
        generated: Generated::of(&first.end, &other.end, &mask, &config.ignored),
        outcome: first,
        mask,
        milestones: milestones.into(),
    };
    Ok((reference, nondeterminism.into_iter().collect()))
}

/// Returns the end state of a run, or of `first` if the run has failed: it may have ended early, and objects that are
/// missing only for this reason must not be excluded from comparisons.
pub(super) fn end_of(other: &Outcome, first: &Outcome) -> EndState {
    match other.violations.is_empty() {
        true => other.end.clone(),
        false => first.end.clone(),
    }
}

/// Runs the scenario twice and compares the results. If they differ, a third run decides whether the first one was an
/// exception.
fn twice(
    config: &Config,
    world: &World,
    nothing: &Plan,
) -> Result<(Outcome, Outcome, Option<Nondeterminism>), Box<Finding>> {
    let usual = || run(config, world, nothing, Role::Usual, None);
    let first = usual();
    if let Some(violation) = first.violations.first().cloned() {
        let reference = Arc::default();
        return Err(Finding::new(&reference, first, nothing.clone(), violation));
    }
    let second = usual();
    let Some(found) = Nondeterminism::between(nothing, &first, &second) else {
        return Ok((first, second, None));
    };
    // The first run initialises the program's statics. If some of them are maps that draw hash keys, other maps iterate
    // in a different order in the first run than in all later runs.
    let third = usual();
    Ok(match Nondeterminism::between(nothing, &second, &third) {
        None if second.violations.is_empty() => (second, third, None),
        _ => (first, second, Some(found)),
    })
}

/// Replaces the end state of a reference with the state after all its timers have fired, and includes the objects
/// created and deleted until then. Faults take time, so a timer that fires after the end of the reference may fire
/// before the end of a different run.
pub(crate) fn rest(
    config: &Config,
    world: &World,
    plan: &Plan,
    ignored: &[String],
    (first, mask): (&mut Outcome, &mut Mask),
) {
    if config.timing.is_real {
        // In real time, runs do not wait for timers.
        return;
    }
    mask.upcoming = upcoming(config, world, plan, first);
    let mut made = |role| {
        let outcome = run(config, world, plan, role, None);
        first.took += outcome.took;
        outcome
    };
    let resting = made(Role::Resting);
    let Some(rested) = resting.rested else { return };
    if let Some(other) = made(Role::OtherResting).rested {
        mask.add(rested.mask(&other, ignored, config.began));
    }
    first.end = rested;
    (first.created, first.deleted) = (resting.created, resting.deleted);
}

/// Returns the objects with a time in their names that controllers create after the end of the scenario. Empty if the
/// run has not created any such object.
fn upcoming(config: &Config, world: &World, plan: &Plan, first: &mut Outcome) -> Upcoming {
    if first.end.newest_of_series().is_empty() {
        return Upcoming::default();
    }
    let passing = run(config, world, plan, Role::Passing, None);
    first.took += passing.took;
    passing.upcoming
}

/// Runs the scenario with a pause after each settled step, and returns the states after these pauses. If the scenario
/// fails because of the pauses, later states are absent.
fn waited(config: &Config, world: &World) -> Vec<Milestone> {
    run(config, world, &Plan::default(), Role::Waiting, None).milestones
}

/// Returns the reference for a plan that skips steps of the scenario, or the failed run if the shorter scenario fails
/// without faults. It consists of two runs, which may be equal by chance in fields that differ between the runs of the
/// `whole` scenario, so these fields are excluded from comparisons as well.
pub(crate) fn shortened_reference(
    config: &Config,
    world: &World,
    plan: &Plan,
    whole: &Reference,
) -> Result<Reference, Box<Outcome>> {
    let nothing = Plan {
        skipped: plan.skipped.clone(),
        ..Plan::default()
    };
    let usual = || run(config, world, &nothing, Role::Usual, None);
    let other = || run(config, world, &nothing, Role::Other, None);
    let (mut first, mut other) = match config.timing.is_real {
        // These runs spend most of their time waiting.
        true => thread::scope(|scope| {
            let other = scope.spawn(other);
            let first = usual();
            (first, other.join().unwrap_or_else(|payload| resume_unwind(payload)))
        }),
        false => {
            let first = usual();
            if !first.violations.is_empty() {
                return Err(Box::new(first));
            }
            (first, other())
        }
    };
    if !first.violations.is_empty() {
        return Err(Box::new(first));
    }
    first.took += other.took;
    other.end = end_of(&other, &first);
    let mut mask = whole.mask.clone();
    mask.add(first.mask(&other, &config.ignored, config.began));
    rest(config, world, &nothing, &config.ignored, (&mut first, &mut mask));
    Ok(Reference {
        plan: nothing,
        generated: Generated::of(&first.end, &other.end, &mask, &config.ignored),
        outcome: first,
        mask,
        // Empty, because milestones are matched by their number, which changes if steps are skipped.
        milestones: Arc::default(),
    })
}
