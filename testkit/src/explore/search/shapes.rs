//! Faults in real time that are derived from the steps of users: restarts with an old state of an object that users
//! changed, and changes of users that a controller does not observe until users change the object again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fake_apiserver::Verb;

use super::candidates::{Candidate, Users, begins_step, firsts, points};
use crate::explore::plans::{Action, Fault, Point, SHORT, Value};
use crate::explore::runs::Timing;
use crate::explore::trace::{BOOKMARK, INITIAL_END, LEASES, Outcome, Request, Step, What};

/// Maximum number of changes by which a restarted controller lags behind: the deletion timestamp, the deletion, the
/// creation of the next object, and its first change by the controller.
const LAG: usize = 4;

/// Number of changes after which a list of an object that was created again shows the deletion timestamp of its
/// predecessor, if the controller has not changed the spec: the creation and the deletion.
const RECREATED: usize = 2;

/// Returns restarts after which a list returns a user's object as it was before the user's last changes. In each step,
/// the process is killed after its last creation or deletion, or else after its last change of a spec, and then after
/// its last write of any kind. Of a series of equal changes, only the first one counts. Restarts of the first kind
/// precede restarts after a write of any kind. Among restarts of one kind, restarts in late steps and with few changes
/// are first. If users deleted an object in the previous step and created it again, the list with the deletion
/// timestamp is first, because a controller may then delete objects that belong to the new one.
pub(super) fn stale_restarts(
    trace: &[Step],
    controllers: &[Arc<str>],
    users: &Users,
    timing: Timing,
) -> Vec<Candidate> {
    let crash = Action {
        fault: Fault::CrashAfter,
        value: Value::Time(timing.down(SHORT.time())),
    };
    let (begins, locks, points) = (steps(trace), locks(trace), points(trace));
    let firsts = firsts(trace);
    let mut found = Vec::new();
    for client in controllers {
        for (number, begin) in begins.iter().enumerate() {
            let end = begins.get(number + 1).copied().unwrap_or(trace.len());
            let writes: Vec<usize> = (*begin..end)
                .filter(|at| is_change(&trace[*at], client, &locks))
                .collect();
            // The numbers of updates differ between runs, so the first update of its kind is preferred.
            let last_of = |is_meant: fn(&Step) -> bool| {
                let meant = || writes.iter().copied().filter(|at| is_meant(&trace[*at]));
                meant().rfind(|at| firsts[*at]).or_else(|| meant().next_back())
            };
            let last = last_of(|_| true);
            let made = writes.iter().copied().rfind(|at| makes_or_deletes(&trace[*at]));
            let of_spec = made.or_else(|| last_of(changes_spec));
            let places = [of_spec, last.filter(|it| of_spec != Some(*it))];
            for (place, at) in places.into_iter().enumerate() {
                let Some(at) = at else { continue };
                for (resource, list) in next_lists(&trace[..at], client) {
                    let most = users.changes(resource, number + 1).min(LAG);
                    let first = if users.recreates(resource, number + 1) {
                        RECREATED
                    } else {
                        1
                    };
                    found.extend((1..=most).map(|lag| {
                        let distance = (lag.abs_diff(first), first > lag);
                        let rewind = Action {
                            fault: Fault::Rewind,
                            value: Value::Number(lag as i64),
                        };
                        let candidate = Candidate {
                            is_repeat: false,
                            rank: 1,
                            at,
                            action: crash,
                            point: points[at].clone(),
                            is_early: false,
                            then: Some((rewind, list.clone())),
                        };
                        ((place, begins.len() - number + distance.0, distance), candidate)
                    }));
                }
            }
        }
    }
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Selects the candidates that hold the event about a user's change until the next step of the users, so that the
/// controller does not observe the first change in time.
pub(super) fn unobserved(trace: &[Step], early: &[Candidate], users: &Users) -> Vec<Candidate> {
    let begins = steps(trace);
    let hides = |it: &&Candidate| {
        let step = begins.partition_point(|begin| *begin <= it.at);
        let Some(What::Event { kind, resource, .. }) = trace.get(it.at).map(|it| &it.what) else {
            return false;
        };
        // The first event of the resource in this step reports the change.
        let is_of_resource = |it: &Step| matches!(&it.what, What::Event { resource: of, .. } if of == resource);
        let is_first = step > 0 && !trace[begins[step - 1]..it.at].iter().any(is_of_resource);
        let is_change = !matches!(kind.as_str(), BOOKMARK | INITIAL_END);
        let has_changed = step > 0 && users.changes(resource, step) > users.changes(resource, step - 1);
        it.action.fault == Fault::Hold && is_change && is_first && has_changed && step < begins.len()
    };
    early.iter().filter(hides).cloned().collect()
}

/// Returns the indexes in the trace at which the named steps of the scenario begin.
fn steps(trace: &[Step]) -> Vec<usize> {
    let begins = trace.iter().enumerate().filter(|(_, it)| begins_step(it));
    begins.map(|(at, _)| at).collect()
}

/// Returns `true` if the step is a write of the client that changed an object other than a Lease or an Event.
fn is_change(step: &Step, client: &str, locks: &BTreeSet<String>) -> bool {
    match &step.what {
        What::Request(it) => {
            let is_beside = is_aside(it.base()) || locks.contains(&it.named());
            &*step.client == client && step.has_changed(it) && !is_beside
        }
        What::Event { .. } | What::Call { .. } | What::Note(_) => false,
    }
}

/// Returns `true` for Leases and Events, which are not the result of a controller's work.
pub(super) fn is_aside(resource: &str) -> bool {
    matches!(resource, LEASES | "events" | "events.events.k8s.io")
}

/// Returns the names of the Leases that controllers write. Older clients also write another object with the same name.
pub(super) fn locks(trace: &[Step]) -> BTreeSet<String> {
    let leases = trace.iter().filter_map(|step| match &step.what {
        What::Request(request) if request.base() == LEASES => Some(request.named()),
        What::Request(_) | What::Event { .. } | What::Call { .. } | What::Note(_) => None,
    });
    leases.collect()
}

fn makes_or_deletes(step: &Step) -> bool {
    matches!(&step.what, What::Request(it) if matches!(it.verb, Verb::Create | Verb::Delete))
}

fn changes_spec(step: &Step) -> bool {
    matches!(&step.what, What::Request(it) if it.resource == it.base())
}

/// Returns the resources that a client lists with requests that may return an older state, each with the point of the
/// client's next list.
fn next_lists<'t>(trace: &'t [Step], client: &str) -> BTreeMap<&'t str, Point> {
    let mut next = BTreeMap::new();
    for step in trace.iter().filter(|it| &*it.client == client) {
        if let What::Request(request) = &step.what
            && is_old_list(request)
            && let Some((class, number)) = step.point.rsplit_once('#')
            && let Ok(number) = number.parse::<usize>()
        {
            next.insert(request.base(), format!("{class}#{}", number + 1));
        }
    }
    next
}

fn is_old_list(request: &Request) -> bool {
    request.verb == Verb::List && request.may_be_stale && request.outcome != Outcome::Unseen
}

#[cfg(all(test, feature = "processes", unix))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::explore::plans::Faults;
    use crate::explore::search::candidates::{candidates, early};
    use crate::explore::trace::{Delivery, STEP};
    use crate::test_cluster::TEST_CLIENT;

    const WEBS: &str = "webs.example.com";

    fn step(client: &str, point: &str, truth: u64, what: What) -> Step {
        Step {
            at: Duration::from_secs(truth),
            client: Arc::from(client),
            life: 1,
            what,
            view: truth,
            truth,
            point: format!("{client}:{point}"),
        }
    }

    fn begins(name: &str, truth: u64) -> Step {
        step(TEST_CLIENT, name, truth, What::Note(format!("{STEP}{name}")))
    }

    /// Creates a step that is a write. It has an effect if `wrote` is greater than `truth`.
    fn write(verb: Verb, resource: &str, truth: u64, wrote: u64) -> Step {
        let mut request = Request::new(verb, resource);
        (request.wrote, request.outcome) = (Some(wrote), Outcome::Answered(200));
        request.object = format!("default/{resource}");
        let point = format!("{}:{resource}:default/#{truth}", verb.as_str());
        step("operator", &point, truth, What::Request(request))
    }

    fn list() -> Step {
        let mut request = Request::new(Verb::List, WEBS);
        (request.may_be_stale, request.outcome) = (true, Outcome::Answered(200));
        step("operator", "list:webs.example.com:/#1", 0, What::Request(request))
    }

    fn event(kind: &str, truth: u64) -> Step {
        let what = What::Event {
            kind: kind.to_owned(),
            resource: WEBS.to_owned(),
            object: "default/sample".to_owned(),
            revision: truth,
            told: Delivery::AtOnce,
        };
        step("operator", &format!("event:{WEBS}:default/sample#{truth}"), truth, what)
    }

    /// Creates a trace in which a user creates and changes a `Web`, and the operator reacts.
    fn trace() -> Vec<Step> {
        vec![
            list(),
            begins("create", 1),
            event("ADDED", 2),
            write(Verb::Create, "pods", 2, 3),
            write(Verb::Update, "webs.example.com/status", 3, 4),
            begins("change", 5),
            event("MODIFIED", 6),
            event("MODIFIED", 7),
            write(Verb::Update, "pods", 7, 8),
            // This write has no effect.
            write(Verb::Update, "services", 8, 2),
            write(Verb::Update, LEASES, 8, 9),
        ]
    }

    fn users() -> Users {
        Users {
            changes: vec![(1, WEBS.to_owned()), (2, WEBS.to_owned())],
        }
    }

    #[test]
    fn stale_restarts_follow_the_last_change_of_each_step_and_read_every_earlier_state() {
        let timing = Timing::real(Duration::from_secs(60), Duration::from_secs(10));
        let found = stale_restarts(&trace(), &[Arc::from("operator")], &users(), timing);
        let plans: Vec<String> = found.iter().map(|it| it.plan().to_string()).collect();
        let plan = |crash: &str, lag: u32| {
            format!("crash-after=100@operator:{crash};rewind={lag}@operator:list:webs.example.com:/#2")
        };
        let expected = [
            plan("update:pods:default/#step2", 1),
            plan("create:pods:default/#2", 1),
            plan("update:pods:default/#step2", 2),
            plan("update:webs.example.com/status:default/#3", 1),
        ];
        assert_eq!(plans, expected);
    }

    #[test]
    fn process_is_killed_after_the_first_of_several_updates_in_a_step() {
        let timing = Timing::real(Duration::from_secs(60), Duration::from_secs(10));
        let mut trace = trace();
        trace.truncate(8);
        trace.extend((7..10).map(|at| {
            let mut update = write(Verb::Update, "pods", at, at + 1);
            update.point = format!("operator:update:pods:default/sample#{at}");
            update
        }));
        let found = stale_restarts(&trace, &[Arc::from("operator")], &users(), timing);
        assert_eq!(found[0].point, "operator:update:pods:default/sample#step2");
    }

    #[test]
    fn list_with_the_deletion_timestamp_is_the_first_old_list_of_an_object_that_was_created_again() {
        let timing = Timing::real(Duration::from_secs(60), Duration::from_secs(10));
        let deleted = [2, 2, 3].map(|step| (step, WEBS.to_owned()));
        let users = Users {
            changes: [(1, WEBS.to_owned())].into_iter().chain(deleted).collect(),
        };
        let trace = vec![
            list(),
            begins("create", 1),
            begins("delete", 2),
            begins("create again", 3),
            write(Verb::Create, "pods", 3, 4),
        ];
        let found = stale_restarts(&trace, &[Arc::from("operator")], &users, timing);
        let lags: Vec<String> = found
            .iter()
            .filter_map(|it| it.then.as_ref())
            .map(|it| it.0.to_string())
            .collect();
        assert_eq!(lags, ["rewind=2", "rewind=3", "rewind=1", "rewind=4"]);
    }

    #[test]
    fn user_changes_except_the_last_are_hidden_until_the_next_change() {
        let timing = Timing::real(Duration::from_secs(60), Duration::from_secs(10));
        let (trace, controllers) = (trace(), [Arc::from("operator")]);
        let singles = candidates(&trace, 0, &controllers, Faults::all(), timing, &users());
        let hidden = unobserved(&trace, &early(&singles, timing), &users());
        let plans: Vec<String> = hidden.iter().map(|it| it.plan().to_string()).collect();
        assert_eq!(
            plans,
            ["early@testkit;hold=4000@operator:event:webs.example.com:default/sample#2"]
        );
    }
}
