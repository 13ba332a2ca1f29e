//! The order of likely faults in real time, when only a few runs are possible: types of faults alternate, and so do
//! types of messages.

use std::collections::BTreeMap;

use fake_apiserver::Verb;

use super::candidates::Candidate;
use crate::explore::plans::{Action, Fault};
use crate::explore::trace::{Request, Step, What};

/// Types of messages. Faults at messages of the first types are the most likely to find a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    Delete,
    Create,
    Write,
    Status,
    Event,
    Other,
}

impl Topic {
    fn of(trace: &[Step], at: usize) -> Self {
        let Some(step) = trace.get(at) else { return Self::Other };
        match &step.what {
            What::Event { .. } => Self::Event,
            What::Request(request) => match request.verb {
                Verb::Delete | Verb::DeleteCollection => Self::Delete,
                Verb::Create => Self::Create,
                Verb::Update | Verb::Patch if lets_go(&trace[at..], request) => Self::Delete,
                Verb::Update | Verb::Patch if request.resource.ends_with("/status") => Self::Status,
                Verb::Update | Verb::Patch => Self::Write,
                Verb::Get | Verb::List | Verb::Watch => Self::Other,
            },
            What::Call { .. } | What::Note(_) => Self::Other,
        }
    }
}

/// Returns `true` if an update removed the last finalizer of a deleted object, so that the next event reports its
/// deletion.
fn lets_go(trace: &[Step], update: &Request) -> bool {
    trace.iter().find_map(|it| match &it.what {
        What::Event {
            kind, resource, object, ..
        } if resource == update.base() && *object == update.object => Some(kind == "DELETED"),
        _ => None,
    }) == Some(true)
}

/// Returns the cost of trying a fault. Faults with a low cost are tried earlier and more often. Most published bugs of
/// operators are found by a crash after a write, a restart with an old state, or a change that is not observed in time.
fn cost(candidate: &Candidate) -> usize {
    match (candidate.action.fault, candidate.rank) {
        (_, 0) => 0,
        (Fault::CrashAfter, _) => 1,
        (Fault::Hold, _) if candidate.is_early => 2,
        (Fault::SlowAnswer, _) => 3,
        (_, 1) => 4,
        _ => 8,
    }
}

/// Orders likely faults, which alternate according to their cost. For each fault, types of messages alternate, and
/// messages of the same type cover each resource before any resource is repeated. The faults in each list of `given`
/// keep their order.
pub(super) fn in_turns(likely: Vec<Candidate>, given: [Vec<Candidate>; 2], trace: &[Step]) -> Vec<Candidate> {
    let mut rounds: BTreeMap<(Action, Topic, &str), usize> = BTreeMap::new();
    let mut by_topic: BTreeMap<(Action, Topic), Vec<_>> = BTreeMap::new();
    for candidate in likely {
        let topic = Topic::of(trace, candidate.at);
        let resource = trace.get(candidate.at).map_or("", |it| it.class().1);
        let round = rounds.entry((candidate.action, topic, resource)).or_default();
        let place = (*round, candidate.at);
        *round += 1;
        by_topic
            .entry((candidate.action, topic))
            .or_default()
            .push((place, candidate));
    }
    let mut by_action: BTreeMap<Action, Vec<_>> = BTreeMap::new();
    for ((action, topic), mut candidates) in by_topic {
        candidates.sort();
        let candidates = candidates.into_iter().enumerate();
        let turns = candidates.map(|(turn, (_, candidate))| ((turn, topic), candidate));
        by_action.entry(action).or_default().extend(turns);
    }
    let sorted = by_action.into_values().map(|mut candidates| {
        candidates.sort();
        candidates.into_iter().map(|(_, candidate)| candidate).collect()
    });
    let mut order = Vec::new();
    for candidates in given.into_iter().chain(sorted) {
        for (turn, candidate) in candidates.into_iter().enumerate() {
            let cost = cost(&candidate);
            order.push((((turn + 1) * cost, cost), candidate));
        }
    }
    order.sort_by_key(|(place, _)| *place);
    order.into_iter().map(|(_, candidate)| candidate).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::explore::trace::Delivery;

    fn step(at: usize, verb: Verb, resource: &str) -> Step {
        Step {
            at: Duration::from_secs(at as u64),
            client: Arc::from("operator"),
            life: 1,
            what: What::Request(Request::new(verb, resource)),
            view: 0,
            truth: 0,
            point: format!("{}:{resource}", verb.as_str()),
        }
    }

    #[test]
    fn faults_and_write_kinds_alternate() {
        let trace = [
            step(0, Verb::Create, "secrets"),
            step(1, Verb::Create, "configmaps"),
            step(2, Verb::Create, "secrets"),
            step(3, Verb::Update, "secrets/status"),
            step(4, Verb::Delete, "pods"),
        ];
        let mut likely = Vec::new();
        for (rank, fault) in [(1, Fault::CrashAfter), (1, Fault::Lose), (2, Fault::CrashBefore)] {
            let tried = (0..trace.len()).map(|at| Candidate {
                is_repeat: false,
                rank,
                at,
                action: Action {
                    fault,
                    value: crate::explore::plans::SHORT,
                },
                point: trace[at].point.clone(),
                is_early: false,
                then: None,
            });
            likely.extend(tried);
        }
        let order = in_turns(likely, [Vec::new(), Vec::new()], &trace);
        let order: Vec<_> = order.iter().map(|it| (it.action.fault.row().word, it.at)).collect();
        let expected = [
            ("crash-after", 4),
            ("crash-after", 0),
            ("crash-after", 3),
            ("crash-after", 1),
            ("lose", 4),
            ("crash-after", 2),
            ("lose", 0),
            ("crash", 4),
            ("lose", 3),
            ("lose", 1),
            ("crash", 0),
            ("lose", 2),
            ("crash", 3),
            ("crash", 1),
            ("crash", 2),
        ];
        assert_eq!(order, expected);
    }

    #[rstest::rstest]
    #[case::last_finalizer("DELETED", Topic::Delete)]
    #[case::another_field("MODIFIED", Topic::Write)]
    fn update_that_removes_the_last_finalizer_counts_as_a_delete(#[case] kind: &str, #[case] topic: Topic) {
        let mut update = Request::new(Verb::Update, "webs.example.com");
        update.object = "default/sample".to_owned();
        let event = What::Event {
            kind: kind.to_owned(),
            resource: update.resource.clone(),
            object: update.object.clone(),
            revision: 2,
            told: Delivery::AtOnce,
        };
        let mut trace = [1, 2].map(|at| step(at, Verb::Update, "webs.example.com"));
        [trace[0].what, trace[1].what] = [What::Request(update), event];
        assert_eq!(Topic::of(&trace, 0), topic);
    }
}
