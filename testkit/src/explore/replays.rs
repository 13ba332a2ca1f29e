//! Runs that are asked for by their replay strings, once or many times over.

use std::hash::{DefaultHasher, Hash, Hasher};

use fake_apiserver::{Entry, RecordedEvent, RecordedRequest};

use super::plan::Plan;
use super::report::{Failure, Nondeterminism};
use super::run::{Outcome, run};
use super::search::{Search, Stop};
use super::shrink::shortened_reference;
use crate::test_cluster::TestCluster;

/// Makes the runs that are asked for by name.
pub(crate) fn replays(
    search: &mut Search<'_>,
    replays: &[String],
    times: u64,
    notes: &mut Vec<String>,
) -> Result<(), Stop> {
    for text in replays {
        let plan = Plan::parse(text).unwrap_or_else(|err| panic!("{err}"));
        let own;
        let mut reference = &search.reference;
        if !plan.skipped.is_empty() {
            let Some(shortened) = shortened_reference(search.config, search.world, &plan) else {
                continue;
            };
            own = shortened;
            reference = &own;
        }
        let once = || run(search.config, search.world, &plan, false, Some(reference));
        let outcome = once();
        search.coverage.schedules += 1;
        search.coverage.messages += outcome.messages;
        let is_met = |point: &str| !point.contains(':') || outcome.trace.iter().any(|step| step.point == point);
        let missed = plan.faults.iter().filter(|it| !is_met(&it.point));
        notes.extend(missed.map(|it| format!("`{it}` of the replay string strikes nothing: there is no such message")));
        for _ in 1..times {
            let again = once();
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

/// The first difference of two runs of one plan.
fn difference(one: &Outcome, other: &Outcome) -> Option<String> {
    let differing = one.trace.iter().zip(&other.trace).find(|(one, other)| one != other);
    if let Some((one, other)) = differing {
        return Some(format!("{one:?} in one run, {other:?} in the other"));
    }
    let (told, told_again) = (&one.violations, &other.violations);
    if one.trace.len() != other.trace.len() {
        Some("one run goes on where the other ends".to_owned())
    } else if told != told_again {
        Some(format!("{told:?} in one run, {told_again:?} in the other"))
    } else if one.digest != other.digest {
        Some("the same requests and events have other bytes, or leave another state".to_owned())
    } else {
        None
    }
}

/// A number for all that was sent and is stored.
pub(crate) fn digest(cluster: &TestCluster) -> u64 {
    let mut hasher = DefaultHasher::new();
    for entry in cluster.journal().since(0) {
        match entry {
            Entry::Request(request) => hash_request(&request, &mut hasher),
            Entry::Event(event) => hash_event(&event, &mut hasher),
        }
    }
    for object in cluster.server.stored_objects() {
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
