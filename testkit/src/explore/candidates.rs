//! Candidates: the possible faults at each point of a trace, in the order of trial.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use fake_apiserver::Verb;

use super::kinds::Faults;
use super::plan::{Action, Plan, Point};
use super::trace::{BOOKMARK, INITIAL_END, Outcome, Request, Step, What};
use crate::test_cluster::TEST_CLIENT;

/// A short and a long window: a retry fits into the short one; the long one outlasts a `settle` or two of the workload.
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(12);

/// A partition that outlasts a lease of fifteen seconds.
const PARTITION: Duration = Duration::from_secs(40);

/// A connection that breaks without a word.
const SILENCE: Duration = Duration::from_secs(30);

/// Delay of a request whose sender has died or given up: longer than a Lease of fifteen seconds takes to change hands.
const LATE: Duration = Duration::from_secs(20);

/// A watch whose other side is gone, until its connection breaks.
const HALF_OPEN: Duration = Duration::from_secs(60);

/// Error of a skewed clock, in milliseconds: twice as long as a lease.
const SKEW: i64 = 30_000;

/// Resource whose writers have a clock that matters.
const LEASES: &str = "leases.coordination.k8s.io";

/// The point of what concerns the server as a whole.
const SERVER: &str = "server";

/// Everything else that is due happens in it.
const INSTANT: Duration = Duration::from_millis(1);

/// Age of the state that a replica shows, in percent of the revisions of the run.
const STALE: [u8; 3] = [50, 75, 25];

/// A fault that may be tried; new kinds of faults come first, then those of small rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    /// The same was possible earlier in the trace at another message of this client, verb and resource.
    pub(crate) is_repeat: bool,
    pub(crate) rank: u8,
    /// Position in the trace.
    pub(crate) at: usize,
    pub(crate) action: Action,
    pub(crate) point: Point,
    /// The test does not wait for it to be over.
    pub(crate) is_early: bool,
}

impl Candidate {
    /// The plan with this fault alone.
    pub(crate) fn plan(&self) -> Plan {
        match self.is_early {
            // The last fault is the one that others come after.
            true => Plan::single(TEST_CLIENT, Action::Early).and(&self.point, self.action),
            false => Plan::single(&self.point, self.action),
        }
    }
}

/// Adds to the faults that last long the same with a test that does not wait for them to be over: what its users do
/// next falls into them.
pub(crate) fn early(singles: &mut Vec<Candidate>) {
    let lasting = singles.iter().filter(|it| it.action.window() >= Some(LONG));
    let early: Vec<Candidate> = lasting
        .map(|it| Candidate {
            is_early: true,
            ..it.clone()
        })
        .collect();
    singles.extend(early);
    singles.sort();
}

/// Returns the faults that are possible from a place in the trace on.
pub(crate) fn candidates(trace: &[Step], from: usize, controllers: &[Arc<str>], faults: Faults) -> Vec<Candidate> {
    let (mut all, mut known) = (Vec::new(), HashSet::new());
    let late = late(trace);
    for (at, step) in trace.iter().enumerate().skip(from) {
        let can_crash = controllers.contains(&step.client);
        let actions = match &step.what {
            What::Request(request) => of_request(request, from > 0, late.contains(&(&*step.client, request.base()))),
            What::Event { kind, .. } => of_event(kind),
            What::Call { .. } => of_call(),
            What::Note(_) => continue,
        };
        for (rank, action) in actions {
            if faults.has(action) && (can_crash || !is_crash(action)) {
                let point = step.point.clone();
                all.push(Candidate {
                    is_repeat: !known.insert((action, &step.client, step.class())),
                    rank,
                    at,
                    action,
                    point,
                    is_early: false,
                });
            }
        }
    }
    if faults.has(Action::RestartAtEnd) && from == 0 {
        all.extend(controllers.iter().map(|client| Candidate {
            is_repeat: false,
            rank: 0,
            at: trace.len(),
            action: Action::RestartAtEnd,
            point: client.to_string(),
            is_early: false,
        }));
    }
    if from == 0 {
        all.extend(of_the_whole(trace).filter(|it| faults.has(it.action)));
    }
    all.sort();
    let mut crashes = HashSet::new();
    all.retain(|it| {
        let moment = |step: &Step| {
            (
                it.action.window(),
                Arc::clone(&step.client),
                moment(trace, it.at, it.action),
            )
        };
        !is_crash(it.action) || trace.get(it.at).is_none_or(|step| crashes.insert(moment(step)))
    });
    all
}

fn is_crash(action: Action) -> bool {
    matches!(action, Action::CrashBefore(_) | Action::CrashAfter(_))
}

/// The moment of a crash: a controller that is started anew then finds the same cluster at the same time as after
/// another crash of the same moment, and has forgotten all else.
fn moment(trace: &[Step], at: usize, action: Action) -> (Duration, u64, usize) {
    // Only the number of calls tells what they have changed.
    let is_call = |step: &&Step| matches!(step.what, What::Call { .. });
    let calls = trace[..at].iter().filter(is_call).count();
    // The change made by a write shows at the next message, if that is sent at once.
    let next = trace.get(at + 1).filter(|it| it.at == trace[at].at);
    match (action, next) {
        (Action::CrashAfter(_), Some(next)) => (next.at, next.truth, calls + usize::from(is_call(&&trace[at]))),
        // Like no other.
        (Action::CrashAfter(_), None) => (trace[at].at, trace[at].truth, usize::MAX - at),
        _ => (trace[at].at, trace[at].truth, calls),
    }
}

/// Returns the faults that hold from the beginning of a run.
fn of_the_whole(trace: &[Step]) -> impl Iterator<Item = Candidate> {
    let writes_leases = |step: &&Step| match &step.what {
        What::Request(request) => {
            request.is_write() && request.outcome != Outcome::Unseen && request.resource.starts_with(LEASES)
        }
        What::Event { .. } | What::Call { .. } | What::Note(_) => false,
    };
    let electors: BTreeSet<Arc<str>> = trace
        .iter()
        .filter(writes_leases)
        .map(|it| Arc::clone(&it.client))
        .collect();
    let skewed = electors.into_iter().flat_map(|client| {
        [SKEW, -SKEW].map(|ahead| Candidate {
            is_repeat: false,
            rank: 4,
            at: 0,
            action: Action::Skew(ahead),
            point: client.to_string(),
            is_early: false,
        })
    });
    let lists = |step: &Step| matches!(&step.what, What::Request(request) if request.verb == Verb::List);
    let pages = trace.iter().any(lists).then(|| Candidate {
        is_repeat: false,
        rank: 4,
        at: 0,
        action: Action::SmallPages,
        point: SERVER.to_owned(),
        is_early: false,
    });
    skewed.chain(pages).chain([Candidate {
        is_repeat: false,
        rank: 4,
        at: 0,
        action: Action::LargeVersions,
        point: SERVER.to_owned(),
        is_early: false,
    }])
}

/// Clients and resources whose requests may arrive late: a client that watches a resource learns of it, and one that
/// holds a Lease has others to reckon with. Nobody else can guard against it.
fn late(trace: &[Step]) -> HashSet<(&str, &str)> {
    let requests = || {
        trace.iter().filter_map(|step| match &step.what {
            What::Request(request) if request.outcome != Outcome::Unseen => Some((&*step.client, request)),
            What::Request(_) | What::Event { .. } | What::Call { .. } | What::Note(_) => None,
        })
    };
    let watches = requests().filter(|(_, it)| it.verb == Verb::Watch);
    let watched = watches.map(|(client, it)| (client, it.base()));
    let electors: HashSet<&str> = requests()
        .filter(|(_, it)| it.is_write() && it.base() == LEASES)
        .map(|(client, _)| client)
        .collect();
    let of_electors = requests().filter(|(client, _)| electors.contains(client));
    watched
        .chain(of_electors.map(|(client, it)| (client, it.base())))
        .collect()
}

fn of_request(request: &Request, is_second: bool, may_be_late: bool) -> Vec<(u8, Action)> {
    if request.outcome == Outcome::Unseen {
        // The server's own controllers are slow at times, and that is all.
        return vec![(5, Action::Delay(SHORT)), (6, Action::Delay(LONG))];
    }
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
            // A create that comes late may find that all else is gone.
            if may_be_late && request.verb != Verb::Create {
                actions.extend([(5, Action::CrashLate(LATE)), (6, Action::Late(LATE))]);
            }
            if request.may_conflict {
                actions.push((1, Action::Conflict));
            }
        }
        Verb::Get => {
            actions.extend([
                (2, Action::Fail(500)),
                (5, Action::Silence(SILENCE)),
                (6, Action::Delay(INSTANT)),
            ]);
            if request.may_be_stale {
                actions.extend(STALE.map(|percent| (4, Action::Stale(percent))));
            }
        }
        Verb::List => {
            actions.extend([
                (3, Action::Fail(500)),
                (5, Action::Delay(SHORT)),
                (6, Action::Silence(SILENCE)),
            ]);
            if request.may_expire {
                actions.push((3, Action::Fail(410)));
            }
            if request.may_be_stale {
                // A list after another fault is mostly that of a restart, which may go back in time.
                let rank = if is_second { 0 } else { 4 };
                actions.extend(STALE.map(|percent| (rank, Action::Stale(percent))));
            }
        }
        Verb::Watch => {
            actions.extend([
                (3, Action::Fail(410)),
                (4, Action::Fail(500)),
                (5, Action::Delay(SHORT)),
                (5, Action::Delay(LONG)),
            ]);
            if request.streams_list {
                actions.push((4, Action::Fail(422)));
            }
        }
    }
    actions
}

fn of_call() -> Vec<(u8, Action)> {
    vec![
        (1, Action::CrashAfter(SHORT)),
        (1, Action::Lose),
        (2, Action::Fail(503)),
        (2, Action::CrashBefore(SHORT)),
        (3, Action::CrashAfter(LONG)),
        (6, Action::Delay(SHORT)),
    ]
}

fn of_event(kind: &str) -> Vec<(u8, Action)> {
    match kind {
        // Bookmarks are a courtesy.
        BOOKMARK => return vec![(6, Action::Drop)],
        // The end of the initial state must be delivered at some time.
        INITIAL_END => return vec![(5, Action::Hold(LONG)), (6, Action::HalfOpen(HALF_OPEN))],
        _ => {}
    }
    vec![
        (1, Action::Hold(LONG)),
        (2, Action::Miss(LONG)),
        (2, Action::CrashBefore(LONG)),
        (3, Action::Hold(SHORT)),
        (3, Action::CrashBefore(SHORT)),
        (4, Action::Expire),
        (5, Action::Twice),
        (5, Action::Cut),
        (6, Action::HalfOpen(HALF_OPEN)),
        (6, Action::Delay(INSTANT)),
    ]
}
