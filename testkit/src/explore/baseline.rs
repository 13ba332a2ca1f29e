//! The reference: runs without faults, and their common end state.

use super::cluster::World;
use super::end_state::Mask;
use super::milestones::Milestone;
use super::plan::Plan;
use super::report::{Failure, Nondeterminism};
use super::run::{Config, Outcome, Reference, Role, run};

/// The reference: two runs without faults, in two worlds, and one of them twice.
pub(crate) fn reference(config: &Config, world: &World) -> Result<(Reference, Vec<Nondeterminism>), Box<Failure>> {
    let nothing = Plan::default();
    let (mut first, again, nondeterminism) = twice(config, world, &nothing)?;
    let other = run(config, world, &nothing, Role::Other, None);
    let mut mask = first.end.mask(&other.end, &config.ignored, config.began);
    mask.add(first.end.mask(&again.end, &[], config.began));
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
        outcome: first,
        mask,
        milestones: milestones.into(),
    };
    Ok((reference, nondeterminism.into_iter().collect()))
}

/// Makes the same run twice, and compares them.
fn twice(
    config: &Config,
    world: &World,
    nothing: &Plan,
) -> Result<(Outcome, Outcome, Option<Nondeterminism>), Box<Failure>> {
    let usual = || run(config, world, nothing, Role::Usual, None);
    let first = usual();
    if let Some(violation) = first.violations.first().cloned() {
        let reference = Reference::default();
        return Err(Box::new(Failure::new(&reference, first, nothing.clone(), violation)));
    }
    let second = usual();
    let Some(found) = Nondeterminism::between(nothing, &first, &second) else {
        return Ok((first, second, None));
    };
    // A program makes its statics in the first run alone. If the maps among them draw keys, other maps have another
    // order in that run than in all runs to come.
    let third = usual();
    Ok(match Nondeterminism::between(nothing, &second, &third) {
        None if second.violations.is_empty() => (second, third, None),
        _ => (first, second, Some(found)),
    })
}

/// Makes the end of a reference the state in which nothing changes by itself any more. Faults last long: what a timer
/// does after the end of the reference, it does before the end of other runs.
pub(crate) fn rest(
    config: &Config,
    world: &World,
    plan: &Plan,
    ignored: &[String],
    (first, mask): (&mut Outcome, &mut Mask),
) {
    let mut made = |role| {
        let outcome = run(config, world, plan, role, None);
        first.took += outcome.took;
        outcome.rested
    };
    let Some(rested) = made(Role::Resting) else { return };
    if let Some(other) = made(Role::OtherResting) {
        mask.add(rested.mask(&other, ignored, config.began));
    }
    first.end = rested;
}

/// The settled steps of a scenario in a run that waits at each of them; none if that is not what the scenario expects.
fn waited(config: &Config, world: &World) -> Vec<Milestone> {
    let waited = run(config, world, &Plan::default(), Role::Waiting, None);
    match waited.violations.is_empty() {
        true => waited.milestones,
        false => Vec::new(),
    }
}
