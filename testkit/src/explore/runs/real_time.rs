//! Runs in real time: their time limits, their reference, and the time after which they count as settled.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::config::{Config, Role};
use super::run::run;
use super::timing::Timing;
use super::world::World;
use crate::explore::outcomes::{Finding, Generated, Milestone, Outcome, Reference, Uids, grouped};
use crate::explore::plans::Plan;
use crate::explore::trace::{BOOKMARK, LEASES, Step, What};
use crate::mask::Mask;
use crate::templates::Templates;

/// Divisor by which long faults are shortened in real time.
const SHORTENS: u32 = 3;

/// Minimum and maximum time without activity after which a run in real time counts as settled.
const QUIET: [Duration; 2] = [Duration::from_millis(700), Duration::from_secs(10)];

impl Timing {
    /// Timing of runs in real time. A scenario is aborted after `scenario`. An end state that becomes correct up to
    /// `slow` after `within` counts as slow, not as wrong.
    pub(crate) const fn real(scenario: Duration, slow: Duration) -> Self {
        Self {
            is_real: true,
            scenario,
            slow,
            look_again: [Duration::from_millis(250), Duration::from_secs(1)],
            step_look_again: [Duration::from_millis(250), Duration::from_secs(1)],
            worker_takes: Duration::from_millis(5),
            shortens: SHORTENS,
            allows_miss: true,
        }
    }
}

impl World {
    /// Sets the time without activity after which a run counts as settled.
    pub(crate) fn quiet(&mut self, quiet: Duration) {
        self.builder.bounds.quiet = quiet;
    }
}

/// Makes the reference in real time from several concurrent runs without faults, and masks fields that differ between
/// them. Also returns the time without activity after which later runs count as settled, which is derived from the
/// pauses in these runs.
pub(crate) fn real_reference(
    config: &Config,
    world: &World,
    runs: usize,
    quiet: Duration,
) -> Result<(Reference, Duration), Box<Finding>> {
    let nothing = Plan::default();
    let roles = (0..runs.max(2)).map(|nth| if nth % 2 == 1 { Role::Other } else { Role::Usual });
    let mut outcomes = thread::scope(|scope| {
        let made = |role| scope.spawn(move || run(config, world, &Plan::default(), role, None));
        let threads: Vec<_> = roles.map(made).collect();
        let joined = threads.into_iter().map(|it| it.join());
        joined
            .map(|it| it.unwrap_or_else(|payload| resume_unwind(payload)))
            .collect::<Vec<Outcome>>()
    });
    if let Some(at) = outcomes.iter().position(|it| !it.violations.is_empty()) {
        let failed = outcomes.swap_remove(at);
        let violation = failed.violations[0].clone();
        return Err(Finding::new(&Arc::default(), failed, nothing, violation));
    }
    let learnt = outcomes.iter().map(|it| longest_pause(it, quiet)).max();
    let learnt = learnt.unwrap_or_default() * 3 / 2 + QUIET[0] / 2;
    let mut others = outcomes.into_iter();
    let mut first = others.next().unwrap_or_default();
    let mut mask = Mask::of(&config.ignored);
    let mut milestones = std::mem::take(&mut first.milestones);
    let mut generated: Option<Generated> = None;
    let (mut created, mut deleted) = (vec![first.created.clone()], vec![first.deleted.clone()]);
    for other in others {
        mask.add(first.mask(&other, &config.ignored, config.began));
        let found = Generated::of(&first.end, &other.end, &mask, &config.ignored);
        generated = Some(generated.map_or_else(|| found.clone(), |it| it.common(&found)));
        let mut states = other.milestones.into_iter();
        milestones = milestones
            .into_iter()
            .map(|it| Milestone::common(it, states.next(), &config.ignored, config.began))
            .collect();
        created.push(other.created);
        deleted.push(other.deleted);
        first.returned.extend(other.returned);
        first.held.extend(other.held);
        first.messages = first.messages.max(other.messages);
        first.took = first.took.max(other.took);
    }
    for (did, runs) in [("created", &created), ("deleted", &deleted)] {
        first.notes.extend(varying(did, runs, &mask.templates));
    }
    first.created = most(&created, &mask.templates);
    first.deleted = most(&deleted, &mask.templates);
    let reference = Reference {
        plan: nothing,
        generated: generated.unwrap_or_default(),
        outcome: first,
        mask,
        milestones: milestones.into(),
    };
    Ok((reference, learnt.clamp(QUIET[0], QUIET[1].min(quiet.max(QUIET[0])))))
}

/// Returns, for each object, the uids in the run in which the object had the most uids. Objects with generated names
/// form one group.
fn most(runs: &[Uids], templates: &Templates) -> Uids {
    let mut most = Uids::new();
    for (key, uids) in runs.iter().flat_map(|it| grouped(it, templates)) {
        let known = most.entry(key).or_default();
        if uids.len() > known.len() {
            *known = uids;
        }
    }
    most
}

/// Describes objects that are created or deleted more often in some runs without faults than in others, for example
/// because of a race in the controller. Plans only fail if they exceed the greatest number. Objects with generated
/// names are not described, because their number may depend on time.
fn varying(did: &str, runs: &[Uids], templates: &Templates) -> Vec<String> {
    let grouped: Vec<Uids> = runs.iter().map(|it| grouped(it, templates)).collect();
    let keys: BTreeSet<&String> = grouped.iter().flat_map(Uids::keys).collect();
    let lines = keys.into_iter().filter(|it| !it.contains('*')).filter_map(|key| {
        let times = grouped.iter().map(|it| it.get(key).map_or(0, BTreeSet::len));
        let (least, most) = (times.clone().min()?, times.max()?);
        (least > 0 && least < most)
            .then(|| format!("without faults, {key} is {did} {least} times in some runs and {most} times in others"))
    });
    lines.collect()
}

/// Returns the longest pause between two messages of a run. Longer pauses than `quiet` are excluded, because the run
/// had settled.
fn longest_pause(outcome: &Outcome, quiet: Duration) -> Duration {
    let leases = outcome.trace.iter().filter_map(|step| match &step.what {
        What::Request(request) if request.base() == LEASES => Some(request.named()),
        What::Request(_) | What::Event { .. } | What::Call { .. } | What::Note(_) => None,
    });
    // Old clients also lock a ConfigMap that has the same name as the Lease.
    let locks: BTreeSet<String> = leases.collect();
    let counts = |step: &&Step| match &step.what {
        What::Request(request) => step.has_changed(request) && !locks.contains(&request.named()),
        What::Event { kind, object, .. } => kind != BOOKMARK && !locks.contains(object),
        What::Call { .. } | What::Note(_) => false,
    };
    let mut last = None;
    let mut longest = Duration::ZERO;
    for step in outcome.trace.iter().filter(counts) {
        let pause = last.map_or(Duration::ZERO, |last| step.at.saturating_sub(last));
        if pause < quiet {
            longest = longest.max(pause);
        }
        last = Some(step.at);
    }
    longest
}

#[cfg(test)]
mod tests {
    use fake_apiserver::Verb;

    use super::*;
    use crate::explore::trace;

    fn write(at: u64, wrote: u64) -> Step {
        let mut request = trace::Request::new(Verb::Update, "pods");
        (request.wrote, request.outcome) = (Some(wrote), trace::Outcome::Answered(200));
        Step {
            at: Duration::from_secs(at),
            client: Arc::from("operator"),
            life: 1,
            what: What::Request(request),
            view: 0,
            truth: 4,
            point: String::new(),
        }
    }

    #[test]
    fn numbers_of_creations_that_differ_between_runs_without_faults_are_noted() {
        let uids = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<BTreeSet<String>>();
        let run = |web: &[&str]| {
            Uids::from([
                ("pods shop/web".to_owned(), uids(web)),
                ("pods shop/a".to_owned(), uids(&["1"])),
            ])
        };
        let runs = [run(&["1", "2"]), run(&["1"])];
        let noted = "without faults, pods shop/web is created 1 times in some runs and 2 times in others";
        assert_eq!(varying("created", &runs, &Templates::default()), [noted]);
    }

    #[test]
    fn longest_pause_ignores_writes_without_effect() {
        let pause = |wrote: u64| {
            let outcome = Outcome {
                trace: vec![write(1, 5), write(3, wrote)],
                ..Outcome::default()
            };
            longest_pause(&outcome, Duration::from_secs(10))
        };
        assert_eq!(pause(6), Duration::from_secs(2));
        assert_eq!(pause(4), Duration::ZERO);
    }
}
