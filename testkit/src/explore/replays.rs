//! Runs that are asked for by their replay strings, once or many times over.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use fake_apiserver::{Entry, RecordedEvent, RecordedRequest};

use super::Violation;
use super::baseline;
use super::cluster::World;
use super::plan::{Action, Plan, given};
use super::report::{Failure, Nondeterminism};
use super::run::{Config, Outcome, Reference};
use super::search::{Search, Stop};
use super::shrink::shortened_reference;
use super::spec::judged;
use super::trace::{self, Step, What};
use crate::test_cluster::TestCluster;

/// Oracle that is violated if a run cannot be made as requested. This is a failure rather than a note: nobody reads the
/// notes of a passing test, and the bug would be taken for fixed.
const PLAYABLE: &str = "the replay can be played";

/// Makes the runs that are asked for by name.
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
            reference = Arc::new(baseline::reference(config, world).map_err(Stop::Failed)?.0);
        }
        if !plan.skipped.is_empty() {
            reference = Arc::new(shortened(config, world, &reference, &plan)?);
        }
        let once = || judged(config, world, &plan, &reference);
        let (outcome, reference) = once();
        let reference = &*reference;
        search.coverage.schedules += 1;
        search.coverage.messages += outcome.messages;
        search.asides.take(&plan, &outcome);
        if let Some(what) = unknown_change(&plan, config).or_else(|| unknown_client(&plan, &outcome)) {
            return Err(unplayable(reference, outcome, plan, what));
        }
        let is_met = |point: &str| !point.contains(':') || outcome.trace.iter().any(|step| step.point == point);
        let missed = plan.faults.iter().filter(|it| !is_met(&it.point));
        notes.extend(missed.map(|it| format!("`{it}` in the replay string strikes nothing: no such message was sent")));
        for _ in 1..times {
            let (again, _) = once();
            search.coverage.schedules += 1;
            search.coverage.messages += again.messages;
            if let Some(what) = difference(&outcome, &again) {
                search.nondeterminism.push(Nondeterminism::new(&plan, &what));
            }
        }
        if let Some(violation) = outcome.violations.first().cloned() {
            return Err(Stop::Failed(Box::new(Failure::new(
                reference, outcome, plan, violation,
            ))));
        }
    }
    Ok(())
}

/// The reference of a replay that leaves out steps, if there are such steps and the others do without them.
fn shortened(config: &Config, world: &World, reference: &Reference, plan: &Plan) -> Result<Reference, Stop> {
    let steps = &reference.outcome.steps;
    if let Some(unknown) = plan.skipped.iter().find(|it| !steps.contains(it)) {
        let what = format!("the scenario has no step {unknown:?}; {}", there_are(steps));
        return Err(unplayable(reference, Outcome::default(), plan.clone(), what));
    }
    shortened_reference(config, world, plan).map_err(|failed| {
        let why = failed.violations.first().map(ToString::to_string).unwrap_or_default();
        let what = format!("the rest of the scenario fails without any fault: {why}");
        unplayable(reference, *failed, plan.clone(), what)
    })
}

/// The first change of a plan that cannot be made by the schema.
fn unknown_change(plan: &Plan, config: &Config) -> Option<String> {
    let is_known = |name: &String| config.spec.as_ref().is_some_and(|it| it.has(name));
    let unknown = plan.changes.iter().find(|it| !is_known(it))?;
    Some(format!("the schema and the object lead to no change {unknown:?}"))
}

/// Returns a client that the plan names and the scenario lacks, except where a message is struck: such a message may no
/// longer be sent once the bug is fixed.
fn unknown_client(plan: &Plan, outcome: &Outcome) -> Option<String> {
    let controllers: BTreeSet<Cow<'_, str>> = outcome.controllers.iter().map(|it| given(it)).collect();
    let asks = |step: &&Step| match &step.what {
        What::Request(request) => request.outcome != trace::Outcome::Unseen,
        What::Event { .. } | What::Call { .. } => true,
        What::Note(_) => false,
    };
    let clients: BTreeSet<Cow<'_, str>> = outcome.trace.iter().filter(asks).map(|it| given(&it.client)).collect();
    plan.faults.iter().find_map(|fault| {
        let (word, known) = if fault.action == Action::RestartAtEnd {
            ("controller", &controllers)
        } else if matches!(fault.action, Action::Skew(_)) {
            ("client", &clients)
        } else {
            return None;
        };
        let name = given(&fault.point);
        (!known.contains(&name)).then(|| format!("no {word} is called {name:?}; {}", there_are(known)))
    })
}

fn unplayable(reference: &Reference, outcome: Outcome, plan: Plan, what: String) -> Stop {
    let violation = Violation::new(PLAYABLE, what);
    Stop::Failed(Box::new(Failure::new(reference, outcome, plan, violation)))
}

/// `there are "a", "b"`
fn there_are<T: fmt::Debug>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<String> = names.into_iter().map(|it| format!("{it:?}")).collect();
    match names.len() {
        0 => "there is none".to_owned(),
        1 => format!("there is {}", names[0]),
        _ => format!("there are {}", names.join(", ")),
    }
}

/// The first difference of two runs of one plan.
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
        Some("equal requests and events differ in their bytes, or leave another state".to_owned())
    } else {
        None
    }
}

/// A number for all that was sent and is stored, Events aside: kube's recorder names and dates them by the machine's
/// clock.
pub(crate) fn digest(cluster: &TestCluster) -> u64 {
    let is_event = |group: &str, resource: &str| matches!((group, resource), ("" | "events.k8s.io", "events"));
    let mut hasher = DefaultHasher::new();
    for entry in cluster.journal().since(0) {
        match entry {
            Entry::Request(it) if it.info.as_ref().is_some_and(|it| is_event(&it.group, &it.resource)) => {}
            Entry::Event(it) if is_event(&it.group, &it.resource) => {}
            Entry::Request(request) => hash_request(&request, &mut hasher),
            Entry::Event(event) => hash_event(&event, &mut hasher),
        }
    }
    let objects = cluster.server.stored_objects().into_iter();
    for object in objects.filter(|it| !is_event(it.group(), it.resource())) {
        (object.resource(), object.namespace(), object.name(), object.revision()).hash(&mut hasher);
        object.value().to_string().hash(&mut hasher);
    }
    hasher.finish()
}

fn hash_request(request: &RecordedRequest, hasher: &mut DefaultHasher) {
    (request.started, request.answered, &request.method, &request.path).hash(hasher);
    (&request.client, &request.user_agent, request.code).hash(hasher);
    (&request.request_body, request.answer_bytes()).hash(hasher);
}

fn hash_event(event: &RecordedEvent, hasher: &mut DefaultHasher) {
    (event.at, event.watch, &event.client, event.kind, event.revision).hash(hasher);
    event.line.hash(hasher);
}
