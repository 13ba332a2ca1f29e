//! What may go wrong at each point of a trace, in the order in which it is tried.

use std::sync::Arc;
use std::time::Duration;

use fake_apiserver::Verb;

use super::kinds::Faults;
use super::plan::{Action, Point};
use super::trace::{Request, Step, What};

/// A short and a long window: a retry fits into the short one; the long one outlasts a `settle` or two of the workload.
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(12);

/// A partition that outlasts a lease of fifteen seconds.
const PARTITION: Duration = Duration::from_secs(40);

/// A connection that breaks without a word.
const SILENCE: Duration = Duration::from_secs(30);

/// Everything else that is due happens in it.
const INSTANT: Duration = Duration::from_millis(1);

/// Something that may be tried, and how early: small ranks first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    pub(crate) rank: u8,
    /// Where in the trace.
    pub(crate) at: usize,
    pub(crate) action: Action,
    pub(crate) point: Point,
}

/// All that may go wrong from a place in the trace on.
pub(crate) fn candidates(trace: &[Step], from: usize, controllers: &[Arc<str>], faults: Faults) -> Vec<Candidate> {
    let mut all = Vec::new();
    for (at, step) in trace.iter().enumerate().skip(from) {
        let can_crash = controllers.contains(&step.client);
        let actions = match &step.what {
            What::Request(request) => of_request(request, from > 0),
            What::Event { .. } => of_event(),
            What::Note(_) => continue,
        };
        for (rank, action) in actions {
            let is_crash = matches!(action, Action::CrashBefore(_) | Action::CrashAfter(_));
            if faults.has(action) && (can_crash || !is_crash) {
                let point = step.point.clone();
                all.push(Candidate {
                    rank,
                    at,
                    action,
                    point,
                });
            }
        }
    }
    if faults.has(Action::RestartAtEnd) && from == 0 {
        all.extend(controllers.iter().map(|client| Candidate {
            rank: 0,
            at: trace.len(),
            action: Action::RestartAtEnd,
            point: client.to_string(),
        }));
    }
    all.sort();
    all
}

fn of_request(request: &Request, is_second: bool) -> Vec<(u8, Action)> {
    let mut actions = Vec::new();
    match request.verb {
        Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => {
            actions.extend([
                (1, Action::CrashAfter(SHORT)),
                (1, Action::Lose),
                (2, Action::CrashBefore(SHORT)),
                (2, Action::Fail(500)),
                (3, Action::CrashAfter(LONG)),
                (4, Action::CrashBefore(LONG)),
                (4, Action::SilenceAfter(SILENCE)),
                (5, Action::Fail(429)),
                (5, Action::Silence(SILENCE)),
                (6, Action::Delay(INSTANT)),
                (6, Action::Delay(SHORT)),
                (6, Action::Pause(PARTITION)),
                (7, Action::Pause(LONG)),
            ]);
            if request.may_conflict {
                actions.push((1, Action::Fail(409)));
            }
        }
        Verb::Get => actions.extend([
            (2, Action::Fail(500)),
            (5, Action::Silence(SILENCE)),
            (6, Action::Delay(INSTANT)),
        ]),
        Verb::List => {
            actions.extend([
                (3, Action::Fail(500)),
                (5, Action::Delay(SHORT)),
                (6, Action::Silence(SILENCE)),
            ]);
            if request.may_be_stale {
                // A list after another fault is mostly that of a restart, which may go back in time.
                let rank = if is_second { 0 } else { 4 };
                actions.extend([50, 75, 25].map(|percent| (rank, Action::Stale(percent))));
            }
        }
        Verb::Watch => actions.extend([
            (3, Action::Fail(410)),
            (4, Action::Fail(500)),
            (5, Action::Delay(SHORT)),
            (5, Action::Delay(LONG)),
        ]),
    }
    actions
}

fn of_event() -> Vec<(u8, Action)> {
    vec![
        (1, Action::Hold(LONG)),
        (2, Action::Miss(LONG)),
        (2, Action::CrashBefore(LONG)),
        (3, Action::Hold(SHORT)),
        (3, Action::CrashBefore(SHORT)),
        (4, Action::Expire),
        (5, Action::Twice),
        (5, Action::Cut),
        (6, Action::Delay(INSTANT)),
    ]
}
