//! The order of likely faults in real time, in which runs are few: kinds of faults take turns, and so do kinds of
//! messages.

use std::collections::BTreeMap;

use fake_apiserver::Verb;

use super::candidates::Candidate;
use crate::explore::plans::Action;
use crate::explore::trace::{Step, What};

/// Kinds of messages, the likeliest for a finding first.
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
    fn of(step: Option<&Step>) -> Self {
        match step.map(|it| &it.what) {
            Some(What::Event { .. }) => Self::Event,
            Some(What::Request(request)) => match request.verb {
                Verb::Delete | Verb::DeleteCollection => Self::Delete,
                Verb::Create => Self::Create,
                Verb::Update | Verb::Patch if request.resource.ends_with("/status") => Self::Status,
                Verb::Update | Verb::Patch => Self::Write,
                Verb::Get | Verb::List | Verb::Watch => Self::Other,
            },
            Some(What::Call { .. } | What::Note(_)) | None => Self::Other,
        }
    }
}

/// Orders likely faults. Faults with a rank of two get half as many turns as those with a rank of one. In its turn, a
/// fault is tried at the next kind of message, and of the same kind first once for each resource.
pub(super) fn in_turns(likely: Vec<Candidate>, trace: &[Step]) -> Vec<Candidate> {
    let mut rounds: BTreeMap<(Action, Topic, &str), usize> = BTreeMap::new();
    let mut by_topic: BTreeMap<(Action, Topic), Vec<_>> = BTreeMap::new();
    for candidate in likely {
        let step = trace.get(candidate.at);
        let topic = Topic::of(step);
        let resource = step.map_or("", |it| it.class().1);
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
    let mut order = Vec::new();
    for (action, mut candidates) in by_action {
        candidates.sort();
        for (turn, (_, candidate)) in candidates.into_iter().enumerate() {
            let place = (turn + 1) * usize::from(candidate.rank);
            order.push(((place, candidate.rank, action), candidate));
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
    use crate::explore::plans::Fault;
    use crate::explore::trace::Request;

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
    fn faults_and_kinds_of_writes_take_turns() {
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
            });
            likely.extend(tried);
        }
        let order = in_turns(likely, &trace);
        let order: Vec<_> = order.iter().map(|it| (it.action.fault.row().word, it.at)).collect();
        let expected = [
            ("crash-after", 4),
            ("lose", 4),
            ("crash-after", 0),
            ("lose", 0),
            ("crash", 4),
            ("crash-after", 3),
            ("lose", 3),
            ("crash-after", 1),
            ("lose", 1),
            ("crash", 0),
            ("crash-after", 2),
            ("lose", 2),
            ("crash", 3),
            ("crash", 1),
            ("crash", 2),
        ];
        assert_eq!(order, expected);
    }
}
