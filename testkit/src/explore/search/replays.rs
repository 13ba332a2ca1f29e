//! Replays: executes the runs of replay strings, once or several times.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::state::Search;
use super::work::Stop;
use crate::explore::outcomes::{Finding, Nondeterminism, Outcome, PLAYABLE, Reference, Violation};
use crate::explore::plans::{Names, Plan, given};
use crate::explore::runs::{Config, Role, World, judged, reference as reference_of, shortened_reference};
use crate::explore::trace;
use crate::explore::trace::{Step, What};

/// Runs the plans of replay strings. If one of these runs fails, the exploration ends without a search.
pub(crate) fn replays(
    search: &mut Search<'_>,
    replays: &[String],
    times: u64,
    notes: &mut Vec<String>,
) -> Result<(), Stop> {
    for text in replays {
        let plan = Plan::parse(text).unwrap_or_else(|err| panic!("{err}"));
        let config = search.runs.config;
        let other = search.runs.world.at(plan.start);
        let world = other.as_ref().unwrap_or(search.runs.world);
        let mut reference = Arc::clone(&search.runs.reference);
        if other.is_some() {
            reference = Arc::new(reference_of(config, world).map_err(Stop::Failed)?.0);
            // References of a spec are kept for one time of day.
            config.spec.iter().for_each(|it| it.forget());
        }
        if !plan.skipped.is_empty() {
            reference = Arc::new(shortened(config, world, &reference, &plan)?);
        }
        let once = || judged(config, world, (&plan, Role::Usual), &reference);
        let (outcome, reference) = once();
        if search.runs.is_stopped() && outcome.messages == 0 {
            // A run that was stopped is not judged.
            return Err(Stop::Spent);
        }
        search.coverage.schedules += 1;
        search.coverage.messages += outcome.messages;
        search.asides.take(&plan, &outcome);
        if let Some(what) = unknown_change(&plan, config).or_else(|| unknown_client(&plan, &outcome)) {
            return Err(unplayable(&reference, outcome, plan, what));
        }
        let is_met = |point: &str| !point.contains(':') || outcome.trace.iter().any(|step| step.point == point);
        let missed = plan.faults.iter().filter(|it| !is_met(&it.point));
        notes.extend(missed.map(|it| format!("`{it}` in the replay string has no effect: no such message was sent")));
        for _ in 1..times {
            let (again, _) = once();
            search.coverage.schedules += 1;
            search.coverage.messages += again.messages;
            if let Some(what) = difference(&outcome, &again) {
                search.nondeterminism.push(Nondeterminism::new(&plan, &what));
            }
        }
        if other.is_some() {
            config.spec.iter().for_each(|it| it.forget());
        }
        if let Some(violation) = outcome.violations.first().cloned() {
            let finding = Finding::new(&reference, outcome, plan, violation);
            search.failures.add(*finding, search.coverage.schedules);
        }
    }
    match search.failures.is_empty() {
        true => Ok(()),
        false => Err(Stop::Spent),
    }
}

/// Returns the reference of a replay that skips steps. Fails if a step does not exist, or if the remaining steps fail
/// without it.
fn shortened(config: &Config, world: &World, reference: &Arc<Reference>, plan: &Plan) -> Result<Reference, Stop> {
    let steps = &reference.outcome.steps;
    if let Some(unknown) = plan.skipped.iter().find(|it| !steps.contains(it)) {
        let what = format!("the scenario has no step {unknown:?}; {}", there_are(steps));
        return Err(unplayable(reference, Outcome::default(), plan.clone(), what));
    }
    shortened_reference(config, world, plan, reference).map_err(|failed| {
        let why = failed.violations.first().map(ToString::to_string).unwrap_or_default();
        let what = format!("the remaining scenario fails without any fault: {why}");
        unplayable(reference, *failed, plan.clone(), what)
    })
}

/// Returns an error message for the first change of a plan that the schema or the object does not permit.
fn unknown_change(plan: &Plan, config: &Config) -> Option<String> {
    let is_known = |name: &String| config.spec.as_ref().is_some_and(|it| it.has(name));
    let unknown = plan.changes.iter().find(|it| !is_known(it))?;
    Some(format!(
        "the schema and the object do not permit the change {unknown:?}"
    ))
}

/// Returns a client of the plan that does not exist in the scenario. Clients of messages are not checked, because a
/// message may no longer be sent once the bug is fixed.
fn unknown_client(plan: &Plan, outcome: &Outcome) -> Option<String> {
    let controllers: BTreeSet<Cow<'_, str>> = outcome.controllers.iter().map(|it| given(it)).collect();
    let asks = |step: &&Step| match &step.what {
        What::Request(request) => request.outcome != trace::Outcome::Unseen,
        What::Event { .. } | What::Call { .. } => true,
        What::Note(_) => false,
    };
    let clients: BTreeSet<Cow<'_, str>> = outcome.trace.iter().filter(asks).map(|it| given(&it.client)).collect();
    plan.faults.iter().find_map(|fault| {
        let (word, known) = match fault.action.fault.row().names {
            Names::Controller => ("controller", &controllers),
            Names::Client => ("client", &clients),
            Names::Message | Names::Fixed => return None,
        };
        let name = given(&fault.point);
        (!known.contains(&name)).then(|| format!("there is no {word} {name:?}; {}", there_are(known)))
    })
}

fn unplayable(reference: &Arc<Reference>, outcome: Outcome, plan: Plan, what: String) -> Stop {
    let violation = Violation::new(PLAYABLE, what);
    Stop::Failed(Finding::new(reference, outcome, plan, violation))
}

/// Formats a list of names as words: `there are "a", "b"`.
fn there_are<T: fmt::Debug>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<String> = names.into_iter().map(|it| format!("{it:?}")).collect();
    match names.len() {
        0 => "there is none".to_owned(),
        1 => format!("there is {}", names[0]),
        _ => format!("there are {}", names.join(", ")),
    }
}

/// Returns the first difference of two runs of one plan.
fn difference(one: &Outcome, other: &Outcome) -> Option<String> {
    let differing = one.trace.iter().zip(&other.trace).find(|(one, other)| one != other);
    if let Some((one, other)) = differing {
        return Some(format!("{one:?} in one run, {other:?} in the other"));
    }
    let (told, told_again) = (&one.violations, &other.violations);
    if one.trace.len() != other.trace.len() {
        Some("one run continues after the other has ended".to_owned())
    } else if told != told_again {
        Some(format!("{told:?} in one run, {told_again:?} in the other"))
    } else if one.digest != other.digest {
        Some("equal requests and events differ in their bytes, or the final states differ".to_owned())
    } else {
        None
    }
}
