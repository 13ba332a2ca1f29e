//! Candidates: the possible faults at each point of a trace, in the order in which they are tried.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use fake_apiserver::Verb;

use crate::explore::plans::{
    Action, Fault, Faults, INSTANT, Kind, LONG, Plan, Point, SHORT, Seen, Try, Value, first_in_step,
};
use crate::explore::runs::Timing;
use crate::explore::trace::{BOOKMARK, INITIAL_END, LEASES, Outcome, Request, STEP, Step, What};
use crate::test_cluster::TEST_CLIENT;

/// Maximum duration of a request, as in kube-apiserver.
const SLOWEST: Duration = Duration::from_secs(60);

/// Rank of faults that delay a read until after a change of the test.
const ACROSS_CHANGE: u8 = 2;

/// A fault to try. The order of candidates is the order in which they are tried: without repetitions first, then by
/// rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    /// Set if the fault was possible earlier in the trace, at another message with the same client, verb and resource.
    /// In real time, the messages must also belong to the same step, and creates and deletes to the same object.
    pub(crate) is_repeat: bool,
    pub(crate) rank: u8,
    /// Index of the message in the trace.
    pub(crate) at: usize,
    pub(crate) action: Action,
    pub(crate) point: Point,
    /// Set if the test does not wait for the end of the fault.
    pub(crate) is_early: bool,
    /// A fault that always accompanies this one.
    pub(crate) then: Option<(Action, Point)>,
}

impl Candidate {
    /// Returns the kind of the fault; overlaps count as a separate kind.
    pub(crate) fn kind(&self) -> Kind {
        match self.is_early {
            true => Kind::Overlap,
            false => self.action.kind(),
        }
    }

    /// Returns the plan with only this fault.
    pub(crate) fn plan(&self) -> Plan {
        let plan = match self.is_early {
            // Further faults are added after the last fault of a plan, so this fault must be the last one.
            true => Plan::single(TEST_CLIENT, Action::EARLY).and(&self.point, self.action),
            false => Plan::single(&self.point, self.action),
        };
        match &self.then {
            Some((action, point)) => plan.and(point, *action),
            None => plan,
        }
    }
}

/// Returns the early variant (`is_early`) of each long fault. In this variant, the test does not wait until the fault
/// has ended, so the next step of the test happens during the fault.
pub(crate) fn early(singles: &[Candidate], timing: Timing) -> Vec<Candidate> {
    let long = timing.window(LONG.time());
    let lasting = singles.iter().filter_map(|it| {
        let mut action = it.action;
        if (action.fault, action.value) == (Fault::Delay, SHORT) {
            // The request must take longer than the time until the next step of the test.
            action = action.lasting(long);
        }
        (action.window() >= Some(long)).then_some((action, it))
    });
    let mut early: Vec<Candidate> = lasting
        .map(|(action, it)| Candidate {
            action,
            is_early: true,
            ..it.clone()
        })
        .collect();
    early.sort();
    early
}

/// Returns faults that delay reads until after the next change of the test, if the test advances the clock instead of
/// waiting. Only the last read before the change is delayed, for each client, verb and resource, and only if the client
/// has read something else at the same time, so that the change is between the two reads. Writes are not delayed,
/// because this would also change the order in which objects arrive, on which a healthy controller may depend.
pub(crate) fn across_changes(reference: &crate::explore::outcomes::Outcome) -> Vec<Candidate> {
    let mut delays: BTreeMap<_, Candidate> = BTreeMap::new();
    let mut known = HashSet::new();
    for (at, step) in reference.trace.iter().enumerate() {
        let What::Request(request) = &step.what else { continue };
        let is_read = |it: &&Step| it.is_request_of(Verb::Get) || it.is_request_of(Verb::List);
        let mut earlier = reference.trace[..at].iter().rev().take_while(|it| it.at == step.at);
        let has_read = earlier.any(|it| it.client == step.client && is_read(&it));
        let is_possible = has_read && is_read(&step) && request.outcome != Outcome::Unseen;
        let Some(next) = reference.next_change(step.at).filter(|_| is_possible) else {
            continue;
        };
        let time = next - step.at + INSTANT.time();
        if time > SLOWEST {
            continue;
        }
        let candidate = Candidate {
            is_repeat: false,
            rank: ACROSS_CHANGE,
            at,
            action: Action {
                fault: Fault::Delay,
                value: Value::Time(time),
            },
            point: step.point.clone(),
            is_early: true,
            then: None,
        };
        delays.insert((Arc::clone(&step.client), step.class(), next), candidate);
    }
    let mut delays: Vec<Candidate> = delays
        .into_iter()
        .map(|((client, class, _), it)| Candidate {
            is_repeat: !known.insert((client, class)),
            ..it
        })
        .collect();
    delays.sort();
    delays
}

/// Returns the faults that are possible from a position in the trace.
pub(crate) fn candidates(
    trace: &[Step],
    from: usize,
    controllers: &[Arc<str>],
    faults: Faults,
    timing: Timing,
    users: &Users,
) -> Vec<Candidate> {
    let (mut all, mut known) = (Vec::new(), HashSet::new());
    let late = Late::of(trace);
    let points = if timing.is_real { points(trace) } else { Vec::new() };
    let mut scenario_step = trace[..from].iter().filter(|it| begins_step(it)).count();
    for (at, step) in trace.iter().enumerate().skip(from) {
        scenario_step += usize::from(begins_step(step));
        let can_crash = controllers.contains(&step.client);
        let seen = |request| Seen {
            request,
            is_second: from > 0,
            may_be_late: late.may_be_late(&step.client, request),
            changes: users.changes(request.base(), scenario_step),
        };
        // In virtual time, a message of a later step counts as a repetition, whose faults are tried last. In real time
        // the search may not get that far, so a message can only repeat messages of the same step.
        let class = match timing.is_real {
            true => (step.class(), written(step), scenario_step),
            false => (step.class(), String::new(), 0),
        };
        for fault in Fault::ALL {
            for Try { rank, value, .. } in tries(*fault, step, &seen) {
                let action = in_time(Action { fault: *fault, value }, timing);
                if faults.has(action.kind()) && (can_crash || !action.is_crash()) {
                    all.push(Candidate {
                        is_repeat: !known.insert((action, &step.client, class.clone())),
                        rank,
                        at,
                        action,
                        point: points.get(at).unwrap_or(&step.point).clone(),
                        is_early: false,
                        then: None,
                    });
                }
            }
        }
    }
    if from == 0 {
        let whole = Fault::ALL.iter().flat_map(|fault| {
            let found = (fault.row().tried.whole)(trace, controllers).into_iter();
            found.map(|it| Candidate {
                is_repeat: false,
                rank: it.rank,
                at: it.at,
                action: Action {
                    fault: *fault,
                    value: it.value,
                },
                point: it.point,
                is_early: false,
                then: None,
            })
        });
        all.extend(whole.filter(|it| faults.has(it.action.kind())));
    }
    all.sort();
    let mut crashes = HashSet::new();
    all.retain(|it| {
        let moment = |step: &Step| {
            (
                it.action.window(),
                Arc::clone(&step.client),
                moment(trace, it.at, it.action, timing),
            )
        };
        // The requests that arrive after the crash differ.
        let is_unique = !it.action.is_crash() || it.action.is_crash_late();
        is_unique || trace.get(it.at).is_none_or(|step| crashes.insert(moment(step)))
    });
    all
}

/// Returns the action with the duration that it has in virtual or in real time.
fn in_time(action: Action, timing: Timing) -> Action {
    let Some(window) = action.window() else { return action };
    action.lasting(match action.is_crash() {
        true => timing.down(window),
        false => timing.window(window),
    })
}

/// Returns the points of a trace. In steps after the first one, the first message of each kind is identified by the
/// number of the step instead of the number of earlier messages.
pub(super) fn points(trace: &[Step]) -> Vec<Point> {
    let mut number = 0;
    let named = trace.iter().zip(firsts(trace)).map(|(step, is_first)| {
        number += usize::from(begins_step(step));
        match step.point.rsplit_once('#') {
            Some((stem, _)) if is_first && number > 1 => first_in_step(stem, number),
            _ => step.point.clone(),
        }
    });
    named.collect()
}

/// Returns, for each message of a trace, `true` if it is the first message of its kind in its step.
pub(super) fn firsts(trace: &[Step]) -> Vec<bool> {
    let mut in_step = HashSet::new();
    let is_first = trace.iter().map(|step| {
        if begins_step(step) {
            in_step.clear();
        }
        step.point
            .rsplit_once('#')
            .is_some_and(|(stem, _)| in_step.insert(stem))
    });
    is_first.collect()
}

/// Returns the name of an object that a request creates or deletes, because faults are tried for each of these objects.
fn written(step: &Step) -> String {
    match &step.what {
        What::Request(it) if it.made_from.is_none() && matches!(it.verb, Verb::Create | Verb::Delete) => it.named(),
        What::Request(_) | What::Event { .. } | What::Call { .. } | What::Note(_) => String::new(),
    }
}

/// Returns `true` if the step is the note at the beginning of a named step of the scenario.
pub(super) fn begins_step(step: &Step) -> bool {
    &*step.client == TEST_CLIENT && matches!(&step.what, What::Note(note) if note.starts_with(STEP))
}

/// The changes that users make in the steps of a scenario.
#[derive(Debug, Default)]
pub(crate) struct Users {
    /// For each change, the ordinal of the step, from 1 (0 before the first step), and the resource; a deletion is
    /// listed twice.
    pub(super) changes: Vec<(usize, String)>,
}

impl Users {
    /// Reads the changes from a run without faults.
    pub(crate) fn of(reference: &crate::explore::outcomes::Outcome) -> Self {
        let begins: Vec<Duration> = reference
            .trace
            .iter()
            .filter(|it| begins_step(it))
            .map(|it| it.at)
            .collect();
        let changes = reference.doings.iter().flat_map(|doing| {
            let step = begins.iter().filter(|it| **it <= doing.at).count();
            let times = if doing.verb == Verb::Delete { 2 } else { 1 };
            std::iter::repeat_n((step, doing.resource.clone()), times)
        });
        Self {
            changes: changes.collect(),
        }
    }

    /// Returns `true` if users deleted an object of the resource in the previous step, and create one in this step.
    pub(super) fn recreates(&self, resource: &str, step: usize) -> bool {
        let of = |number: usize| {
            let made = self.changes.iter();
            made.filter(|(at, of)| *at == number && of == resource).count()
        };
        // A deletion is listed twice.
        step > 1 && of(step - 1) >= 2 && of(step) == 1
    }

    /// Returns the number of changes of a resource up to a step.
    pub(super) fn changes(&self, resource: &str, until: usize) -> usize {
        let made = self.changes.iter();
        made.filter(|(step, of)| *step <= until && of == resource).count()
    }
}

/// Returns the variants of a fault to try at a step.
fn tries<'a>(fault: Fault, step: &'a Step, seen: &impl Fn(&'a Request) -> Seen<'a>) -> Vec<Try> {
    let tried = &fault.row().tried;
    let (tries, request) = match &step.what {
        What::Request(request) if request.outcome == Outcome::Unseen => (tried.workers, Some(request)),
        What::Request(request) => match request.verb {
            Verb::Get if request.is_discovery() => (tried.discovery, Some(request)),
            Verb::Get => (tried.gets, Some(request)),
            Verb::List => (tried.lists, Some(request)),
            Verb::Watch => (tried.watches, Some(request)),
            Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection => {
                (tried.writes, Some(request))
            }
        },
        What::Event { kind, .. } => match kind.as_str() {
            BOOKMARK => (tried.bookmarks, None),
            INITIAL_END => (tried.initial_ends, None),
            _ => (tried.events, None),
        },
        What::Call { .. } => (tried.calls, None),
        What::Note(_) => (&[][..], None),
    };
    let is_possible = |it: &&Try| request.is_none_or(|request| (it.is_possible)(&seen(request)));
    tries.iter().filter(is_possible).copied().collect()
}

/// Identifies the moment of a crash. If the moments of two crashes are equal, the restarted controller finds the same
/// cluster at the same time, so trying one of them is sufficient.
fn moment(trace: &[Step], at: usize, action: Action, timing: Timing) -> (Duration, u64, usize) {
    // The effects of calls are unknown, so the number of calls distinguishes moments.
    let is_call = |step: &&Step| matches!(step.what, What::Call { .. });
    let calls = trace[..at].iter().filter(is_call).count();
    // The change made by a write is visible at the next message, if that message occurs at the same time.
    let next = trace.get(at + 1).filter(|it| timing.is_real || it.at == trace[at].at);
    // In real time every message has a different time, so times are not compared.
    let time = |step: &Step| if timing.is_real { Duration::ZERO } else { step.at };
    match (action.is_crash_after(), next) {
        (true, Some(next)) => (time(next), next.truth, calls + usize::from(is_call(&&trace[at]))),
        // The index makes the moment unique, so that the crash is tried.
        (true, None) => (time(&trace[at]), trace[at].truth, usize::MAX - at),
        (false, _) => (time(&trace[at]), trace[at].truth, calls),
    }
}

/// Determines the requests for which a late arrival is tried. A client that watches the object can notice the change,
/// and a client that holds a Lease expects other writers. Other clients cannot detect a late arrival.
struct Late<'t> {
    /// Objects that clients watch: client, resource and `namespace/name`.
    watched: HashSet<(&'t str, &'t str, &'t str)>,
    electors: HashSet<&'t str>,
}

impl<'t> Late<'t> {
    fn of(trace: &'t [Step]) -> Self {
        let mut late = Self {
            watched: HashSet::new(),
            electors: HashSet::new(),
        };
        for step in trace {
            match &step.what {
                What::Event { resource, object, .. } => {
                    late.watched.insert((&step.client, resource, object));
                    // A deletion of a whole collection refers to the namespace without a name.
                    let namespace = object.find('/').map_or(0, |at| at + 1);
                    late.watched.insert((&step.client, resource, &object[..namespace]));
                }
                What::Request(request) if request.outcome != Outcome::Unseen => {
                    if request.is_write() && request.base() == LEASES {
                        late.electors.insert(&step.client);
                    }
                }
                What::Request(_) | What::Call { .. } | What::Note(_) => {}
            }
        }
        late
    }

    fn may_be_late(&self, client: &str, request: &Request) -> bool {
        self.electors.contains(client) || self.watched.contains(&(client, request.base(), &request.object))
    }
}
