//! `Gate`: decides which faults affect each message of a run, according to its plan, and records the messages.
//!
//! Its input consists of requests, responses and events as data. It neither sends messages nor waits.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fake_apiserver::{ApiServer, Verb};
use tokio::time::Instant;

use super::life::{Life, Shown};
use crate::explore::outcomes::{Bodies, Count, DELETES_BY_NAME, HOT_LOOP, Judged, Milestone, Uids, Violation, Wrote};
use crate::explore::plans::{Action, OnAnswer, OnEvent, OnRequest, Plan, escaped, given};
use crate::explore::trace::{Delivery, Outcome, Request, STEP, Step, What, timeless, without_task_ids};
use crate::lock::lock;
use crate::test_cluster::TEST_CLIENT;

/// Maximum number of requests and events at one instant of virtual time; a run with more counts as a loop that stops
/// the clock.
const AT_ONE_INSTANT: u64 = 2_000;

/// Waiting for this time raises the limit on messages by the number permitted for a whole run.
const RATE: Duration = Duration::from_secs(120);

/// Maximum number of messages that the report of a hot loop lists.
const CULPRITS: usize = 4;

/// Maximum number of output lines of controllers that a run keeps.
#[cfg(all(feature = "processes", unix))]
const OUTPUT_LINES: usize = 1_000;

/// Minimum delay at which a request counts as held. In real time every request takes some time.
const HELD: Duration = Duration::from_millis(1);

/// The gate of one run.
pub(crate) struct Gate {
    pub(crate) server: ApiServer,
    pub(crate) plan: Plan,
    /// The revision at which the run began.
    pub(crate) base: u64,
    pub(crate) started: Instant,
    /// Maximum number of messages; a run with more counts as a hot loop. See also `State::allowed`.
    limit: u64,
    /// Set if deletes by name are checked.
    checks_deletes: bool,
    /// The recorded state of the run.
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) trace: Vec<Step>,
    /// The named steps of the scenario, in the order in which they began.
    pub(crate) steps: Vec<String>,
    pub(super) counts: BTreeMap<String, u32>,
    paused: BTreeMap<Arc<str>, Instant>,
    /// Clients and resources of watches that are held, with the time until which they are held.
    silent: BTreeMap<(Arc<str>, String), Instant>,
    lagging: BTreeMap<(Arc<str>, String), Instant>,
    /// Ends of the outages of external systems, by client and system.
    pub(super) outages: BTreeMap<(String, String), Instant>,
    lives: BTreeMap<Arc<str>, Vec<Arc<Life>>>,
    /// Number of named steps of the scenario that have begun, including steps that the plan skips.
    pub(crate) step: usize,
    /// Points of the messages in the current step, without the ordinals of the messages.
    pub(crate) in_step: HashSet<String>,
    pub(crate) violations: Vec<Violation>,
    /// Latest end of the faults that have begun.
    pub(crate) windows_end: Option<Instant>,
    /// Time from a step to the correct state, if it exceeded the time limit (`within`, or the `timeout` of a wait).
    pub(crate) late_step: Option<std::time::Duration>,
    pub(crate) messages: u64,
    /// Number of messages by which the limit for hot loops is raised: for requests of workers, waits, and additional
    /// pages.
    pub(crate) allowed: u64,
    /// Uids of the objects that controllers created, by object; objects with generated names are keyed by their prefix.
    pub(crate) created: Uids,
    pub(crate) deleted: Uids,
    pub(crate) coverage: BTreeSet<u64>,
    /// Number of times each controller ended by itself in a way and was restarted.
    pub(crate) ended: BTreeMap<(Arc<str>, String), u32>,
    /// Description of the first step of the test that began while a fault was active.
    pub(crate) went_on: Option<String>,
    /// Latest end of the faults during which a step of the test has begun.
    overlapped_until: Option<Instant>,
    /// Time from the last fault to the correct end state, if it exceeded `within`.
    pub(crate) late: Option<Duration>,
    /// The latest instant of virtual time at which a message occurred, and the number of messages at this instant.
    at_instant: (Option<Instant>, u64),
    /// Number of lists with pages that a client has not read yet, by client and resource.
    pub(crate) pages: BTreeMap<(Arc<str>, String), u32>,
    /// State of the cluster at each return of `settle`.
    pub(crate) milestones: Vec<Milestone>,
    /// Number of times `settle` returned.
    pub(crate) settled: usize,
    /// Virtual times since the start of the run at which `settle` returned.
    pub(crate) settled_times: Vec<Duration>,
    /// Number of entries in the server's journal when `settle` last returned.
    pub(crate) settled_at: u64,
    /// Set if the scenario is over.
    pub(crate) is_over: bool,
    /// Set if the scenario executed all of its steps.
    pub(crate) is_complete: bool,
    /// Time of the first fault since the start of the run.
    pub(crate) faults_begin: Option<Duration>,
    /// Number of times the scenario waited for the cluster.
    pub(crate) waited: usize,
    /// Set if the scenario failed early because the plan did not allow it to wait for the cluster.
    pub(crate) is_void: bool,
    /// Set if the end state cannot be judged, because the reference lacks the state to compare it with.
    pub(crate) is_unjudged: bool,
    /// Set if a run in real time failed before the time limit, because a wrong state no longer changed.
    pub(crate) is_hasty: bool,
    /// Number of settled steps before the step with a wrong state.
    pub(crate) wrong_step: Option<usize>,
    /// Time of the test's last request, if it must pause between requests.
    pub(crate) sent_at: Option<Instant>,
    /// The first event of each object in the `arrivals` of the plan, by the index of the object.
    pub(super) arrived: BTreeMap<usize, Arrival>,
    /// Descriptions of values that were assigned to objects in a different order from the reference.
    pub(crate) permuted: Vec<String>,
    /// Resources and paths of the fields that differed from the reference in the last comparison.
    pub(crate) unlike: BTreeSet<(String, String)>,
    /// The differences in the last comparison, if all of them may be counts of failures.
    pub(crate) failure_counts: Vec<Count>,
    /// Name of the controller that created each object, by the object's uid.
    pub(crate) made: BTreeMap<String, Arc<str>>,
    /// Indexes of the `sometimes` checks that have held at least once.
    pub(crate) held: BTreeSet<usize>,
    /// Revision at which the `always` and `sometimes` checks were last evaluated.
    pub(crate) checked_at: u64,
    /// Output of controllers, oldest line first.
    pub(crate) output: VecDeque<Wrote>,
    /// The bodies of requests and responses by the index of the request in the trace, in runs that are recorded.
    pub(crate) bodies: Option<BTreeMap<usize, Bodies>>,
}

/// The first event of an object.
pub(super) struct Arrival {
    /// Time at which the server sent the event.
    pub(super) sent: Instant,
    /// Time at which a client received the event; `None` while it is held.
    pub(super) told: Option<Instant>,
}

/// A registered request.
pub(crate) struct Ticket {
    /// Index of the request's step in the trace.
    pub(crate) index: usize,
    /// Effects to apply before the request reaches the server.
    pub(crate) before: Vec<OnRequest>,
    pub(crate) after: Vec<OnAnswer>,
}

impl Gate {
    pub(crate) fn new(server: ApiServer, plan: Plan, limit: u64, checks_deletes: bool) -> Self {
        let started = Instant::now();
        let state = State {
            windows_end: plan.cut_off.as_ref().map(|(_, [_, until])| started + *until),
            ..State::default()
        };
        Self {
            base: server.resource_version(),
            server,
            plan,
            started,
            limit,
            checks_deletes,
            state: Mutex::new(state),
        }
    }

    /// Registers the start of a named step of the scenario.
    pub(crate) fn step(&self, name: &str, place: &str) {
        let place = match place {
            "" => String::new(),
            place => format!(" ({place})"),
        };
        self.note(&TEST_CLIENT.into(), 0, format!("{STEP}{name}{place}"));
        self.state().steps.push(name.to_owned());
    }

    pub(crate) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns `true` if the plan skips a step of the scenario.
    pub(crate) fn skips(&self, step: &str) -> bool {
        self.plan.skipped.iter().any(|it| it == step)
    }

    /// Keeps the body of a request, and later the body of its response, in runs that are recorded.
    pub(crate) fn keep(&self, index: usize, body: &Bytes, which: impl FnOnce(&mut Bodies) -> &mut Bytes) {
        if let Some(bodies) = &mut self.state().bodies {
            *which(bodies.entry(index).or_default()) = body.clone();
        }
    }

    /// Returns the number of steps in the trace so far, or `usize::MAX` while the state is locked.
    pub(crate) fn place(&self) -> usize {
        // Output written while the state is locked belongs to the step that is being recorded.
        self.state.try_lock().map_or(usize::MAX, |it| it.trace.len())
    }

    pub(crate) fn note(&self, client: &Arc<str>, life: u32, text: String) {
        let truth = self.server.resource_version();
        let at = self.started.elapsed();
        self.state().trace.push(Step {
            at,
            client: Arc::clone(client),
            life,
            what: What::Note(text),
            view: truth,
            truth,
            point: String::new(),
        });
    }

    /// Begins a new run of a client, which lasts from its start to its crash.
    pub(crate) fn life(&self, client: &str) -> Arc<Life> {
        let client: Arc<str> = escaped(client).into();
        let mut state = self.state();
        let lives = state.lives.entry(Arc::clone(&client)).or_default();
        let life = Arc::new(Life::new(client, lives.len() as u32 + 1));
        lives.push(Arc::clone(&life));
        life
    }

    /// Counts a message. Returns `true` if it exceeds a limit, which is reported as a hot loop.
    pub(super) fn is_too_many(&self, state: &mut State, about: impl FnOnce() -> String) -> bool {
        state.messages += 1;
        let now = Some(Instant::now());
        match state.at_instant.0 == now {
            true => state.at_instant.1 += 1,
            false => state.at_instant = (now, 1),
        }
        let limit = self.limit.saturating_add(state.allowed);
        let is_stuck = state.at_instant.1 > AT_ONE_INSTANT;
        let is_too_many = is_stuck || state.messages > limit;
        if is_too_many && !state.violations.iter().any(|it| it.oracle == HOT_LOOP) {
            let what = match is_stuck {
                true => format!(
                    "{AT_ONE_INSTANT} requests and events at one instant of virtual time:{}",
                    most_frequent(&state.trace[state.trace.len().saturating_sub(AT_ONE_INSTANT as usize)..])
                ),
                false => format!(
                    "more than {limit} requests and events; the last is {}, the most frequent are:{}",
                    about(),
                    most_frequent(&state.trace)
                ),
            };
            state.violations.push(Violation::new(HOT_LOOP, what));
        }
        is_too_many
    }

    /// Records a comparison with the reference. Returns the differences, one per line; empty if only counters of the
    /// plan's failures differ.
    pub(crate) fn compared(&self, mut judged: Judged) -> Vec<String> {
        let is_counted = |it: &Count| self.plan.counted.contains(&it.text());
        if !judged.counts.is_empty() && judged.counts.iter().all(is_counted) {
            judged = Judged::default();
        }
        let mut state = self.state();
        state.permuted = judged.permuted;
        state.unlike = judged.fields;
        state.failure_counts = judged.counts;
        judged.lines
    }

    /// Registers that the test waits for `time`, which raises the permitted number of messages.
    pub(crate) fn waits(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let more = self.limit.saturating_mul(millis) / (RATE.as_secs() * 1_000);
        let mut state = self.state();
        state.allowed = state.allowed.saturating_add(more);
    }

    /// Registers a request before it reaches the server; returns `None` if there are too many messages.
    pub(crate) fn request(&self, life: &Life, request: Request, body_about: &str) -> Option<Ticket> {
        let view = life.view(&request.resource);
        let truth = self.server.resource_version();
        let mut state = self.state();
        if self.is_too_many(&mut state, || body_about.to_owned()) {
            return None;
        }
        let (verb, resource, object) = (request.verb.as_str(), &request.resource, &request.object);
        let stem = format!("{}:{verb}:{resource}:{object}", life.client);
        let (point, actions) = self.actions(&mut state, stem);
        let index = state.trace.len();
        let (at, client) = (self.started.elapsed(), Arc::clone(&life.client));
        state.trace.push(Step {
            at,
            client,
            life: life.number,
            what: What::Request(request),
            view,
            truth,
            point,
        });
        Some(Ticket {
            index,
            before: effects(&actions, |it| it.effects().request),
            after: effects(&actions, |it| it.effects().answer),
        })
    }

    /// Registers an event that is about to be delivered. Returns its index in the trace and the effects of faults.
    pub(crate) fn event(&self, life: &Life, resource: &str, kind: &str, shown: &Shown) -> (usize, Vec<OnEvent>) {
        let view = life.view(resource);
        let truth = self.server.resource_version();
        let mut state = self.state();
        let object = format!("{}/{}", shown.namespace, timeless(resource, &shown.name));
        self.is_too_many(&mut state, || format!("the {kind} event for {resource} {object}"));
        let (point, actions) = self.actions(&mut state, format!("{}:event:{resource}:{object}", life.client));
        let at = self.started.elapsed();
        let what = What::Event {
            kind: kind.to_owned(),
            resource: resource.to_owned(),
            object,
            revision: shown.revision,
            told: Delivery::AtOnce,
        };
        let index = state.trace.len();
        state.trace.push(Step {
            at,
            client: Arc::clone(&life.client),
            life: life.number,
            what,
            view,
            truth,
            point,
        });
        (index, effects(&actions, |it| it.effects().event))
    }

    /// Records that a request reaches the server.
    pub(crate) fn reaches(&self, index: usize) {
        let now = self.started.elapsed();
        let mut state = self.state();
        let Some(step) = state.trace.get_mut(index) else { return };
        if let What::Request(request) = &mut step.what
            && now >= step.at + HELD
        {
            request.reached = Some(now);
        }
    }

    /// Records the object that a write changed, and the version that it wrote.
    pub(crate) fn struck(&self, about: &Request, index: usize, shown: &Shown) {
        if !about.is_write() || shown.name.is_empty() {
            return;
        }
        let mut state = self.state();
        let Some(step) = state.trace.get_mut(index) else { return };
        if let What::Request(request) = &mut step.what {
            request.wrote = (shown.revision > 0).then_some(shown.revision);
            match request.verb {
                Verb::Create => request.creates = Some(timeless(&request.resource, &shown.name).into_owned()),
                _ => {
                    let saw = request.saw.as_ref();
                    request.is_of_another = saw.is_some_and(|it| !shown.uid.is_empty() && *it != shown.uid);
                }
            }
        }
    }

    /// Records that an event was delivered late or dropped.
    pub(crate) fn told_late(&self, index: usize, is_told: bool) {
        let now = self.started.elapsed();
        if let Some(Step {
            what: What::Event { told, .. },
            ..
        }) = self.state().trace.get_mut(index)
        {
            *told = if is_told { Delivery::At(now) } else { Delivery::Never };
        }
    }

    /// Records the outcome of a request, and adds it to the coverage.
    pub(crate) fn outcome(&self, life: &Life, index: usize, outcome: Outcome) {
        let mut state = self.state();
        let Some(step) = state.trace.get_mut(index) else { return };
        let lag = step.truth.saturating_sub(step.view);
        let lag = lag.checked_ilog2().map_or(0, |it| it + 1);
        if let What::Request(request) = &mut step.what {
            request.outcome = outcome;
            let mut hasher = DefaultHasher::new();
            let code = match request.outcome {
                Outcome::Open => 0,
                Outcome::Answered(code) => code,
                Outcome::Broken => 1,
                Outcome::Unseen => 2,
            };
            (
                &*life.client,
                &request.object,
                &request.resource,
                request.verb,
                lag,
                code,
            )
                .hash(&mut hasher);
            state.coverage.insert(hasher.finish());
        }
    }

    /// Records that a controller ended by itself, and its backoff if it will be restarted.
    pub(crate) fn ended(&self, name: &str, how: &str, back_off: Option<Duration>) {
        let (client, how): (Arc<str>, _) = (escaped(name).into(), without_task_ids(how));
        let life = self.life_of(&client);
        let Some(back_off) = back_off else {
            let what = format!("{how}; it is not restarted (call `.restarts()` to restart it as a kubelet does)");
            return self.note(&client, life, what);
        };
        self.lasts(back_off);
        self.note(&client, life, format!("{how}; it is restarted after {back_off:?}"));
        let first_line = how.lines().next().unwrap_or_default().to_owned();
        *self.state().ended.entry((client, first_line)).or_default() += 1;
    }

    /// Records a line of a controller's output. If there are too many lines, the oldest is dropped.
    #[cfg(all(feature = "processes", unix))]
    pub(crate) fn wrote(&self, name: &str, line: String) {
        let at = self.started.elapsed();
        let mut state = self.state();
        if state.output.len() >= OUTPUT_LINES {
            state.output.pop_front();
        }
        state.output.push_back(Wrote {
            at,
            client: name.to_owned(),
            line,
        });
    }

    /// Registers that a step of the test begins at this source location. Keeps a description of the first step that
    /// begins before the end of a fault.
    pub(crate) fn goes_on(&self, place: &str) {
        let (now, mut state) = (Instant::now(), self.state());
        let Some(end) = state.windows_end.filter(|end| *end > now) else {
            return;
        };
        state.overlapped_until = Some(end);
        if state.went_on.is_none() {
            let [at, until] = [now, end].map(|it| (it - self.started).as_secs_f64());
            state.went_on = Some(format!(
                "the step at {place} began at {at:.3} s, before the faults ended at {until:.3} s: the controller must \
                 handle this if users may take this step at any time; if the step depends on earlier results, wait for \
                 them with `eventually`"
            ));
        }
    }

    /// Returns the end of the faults that have begun so far; `None` without such faults, or if the test does not wait
    /// for them.
    pub(crate) fn settles_at(&self) -> Option<Instant> {
        let state = self.state();
        // A wait for the cluster to settle is counted when it ends.
        let is_early = self.is_early(state.waited + 1);
        state.windows_end.filter(|_| !is_early)
    }

    /// Returns `true` if the test continues during faults at the wait with this number, counted from 1.
    pub(crate) fn is_early(&self, wait: usize) -> bool {
        self.plan.overlaps() && self.plan.patient_from.is_none_or(|patient| wait < patient)
    }

    /// Returns `true` if a fault is active although the test has continued.
    pub(crate) fn is_overlapped(&self) -> bool {
        let state = self.state();
        self.is_early(state.waited) && state.windows_end > Some(Instant::now())
    }

    /// Returns `true` if a step of the test has begun during each of the faults.
    pub(crate) fn has_overlapped(&self) -> bool {
        let state = self.state();
        state.overlapped_until.is_some() && state.overlapped_until >= state.windows_end
    }

    /// Registers that a fault lasts for `time` from now on.
    pub(crate) fn lasts(&self, time: Duration) {
        let end = Some(Instant::now() + time);
        let mut state = self.state();
        state.windows_end = state.windows_end.max(end);
    }

    /// Disconnects a client from the server for `time`.
    pub(crate) fn pause(&self, client: &Arc<str>, time: Duration) {
        self.lasts(time);
        self.state().paused.insert(Arc::clone(client), Instant::now() + time);
    }

    /// Holds all watches of a resource by a client for `time`. A program may have several caches of a resource.
    pub(crate) fn silence(&self, life: &Life, resource: &str, time: Duration) {
        self.lasts(time);
        let key = (Arc::clone(&life.client), resource.to_owned());
        self.state().silent.insert(key, Instant::now() + time);
    }

    /// Returns the time until which the client's watches of a resource are held.
    pub(crate) fn silent(&self, life: &Life, resource: &str) -> Option<Instant> {
        let state = self.state();
        if state.silent.is_empty() {
            return None;
        }
        let until = state
            .silent
            .get(&(Arc::clone(&life.client), resource.to_owned()))
            .copied();
        until.filter(|it| *it > Instant::now())
    }

    /// Makes the client's next watch of a resource silent for `time`.
    pub(crate) fn lag(&self, life: &Life, resource: &str, time: Duration) {
        self.lasts(time);
        let key = (Arc::clone(&life.client), resource.to_owned());
        self.state().lagging.insert(key, Instant::now() + time);
    }

    /// Removes and returns the time until which the next watch of a resource is silent.
    pub(crate) fn lags(&self, life: &Life, resource: &str) -> Option<Instant> {
        let mut state = self.state();
        if state.lagging.is_empty() {
            return None;
        }
        state.lagging.remove(&(Arc::clone(&life.client), resource.to_owned()))
    }

    /// Returns the time until which a client is disconnected.
    pub(crate) fn paused(&self, client: &str) -> Option<Instant> {
        if let Some((cut_off, [from, until])) = &self.plan.cut_off
            && cut_off == client
            && (*from..*until).contains(&self.started.elapsed())
        {
            return Some(self.started + *until);
        }
        let state = self.state();
        if state.paused.is_empty() {
            return None;
        }
        state
            .paused
            .get(client)
            .copied()
            .filter(|until| *until > Instant::now())
    }

    /// Returns the ordinal of the current run of a client; 0 if the client has not been created.
    pub(crate) fn life_of(&self, client: &str) -> u32 {
        self.state().lives.get(client).map_or(0, |it| it.len() as u32)
    }

    /// Returns the runs of a client that have begun so far.
    pub(crate) fn lives(&self, client: &str) -> Vec<Arc<Life>> {
        self.state().lives.get(client).cloned().unwrap_or_default()
    }

    /// Records a violation, unless the same oracle has already been violated.
    pub(crate) fn violation(&self, oracle: &'static str, what: String) {
        let mut state = self.state();
        if !state.violations.iter().any(|it| it.oracle == oracle) {
            state.violations.push(Violation::new(oracle, what));
        }
    }

    /// Records that a controller created or deleted an object, and checks deletes by name.
    pub(crate) fn done(&self, life: &Life, request: &Request, created: bool, shown: &Shown, has_precondition: bool) {
        let base = request.resource.split('/').next().unwrap_or_default();
        if matches!(base, "events" | "events.events.k8s.io" | "leases.coordination.k8s.io") || shown.uid.is_empty() {
            return;
        }
        let (namespace, name) = request.object.split_once('/').unwrap_or_default();
        let name = if shown.name.is_empty() { name } else { &shown.name };
        let key = match shown.generate_name.is_empty() {
            true => format!("{base} {namespace}/{name}"),
            false => format!("{base} {namespace}/{}*", shown.generate_name),
        };
        if created {
            let mut state = self.state();
            state.made.insert(shown.uid.clone(), Arc::clone(&life.client));
            state.created.entry(key).or_default().insert(shown.uid.clone());
        } else if request.verb == Verb::Delete && !request.resource.contains('/') {
            let is_checked = !has_precondition && self.checks_deletes;
            let known = life.uid(base, namespace, name);
            if let Some(known) = known.filter(|known| *known != shown.uid && is_checked) {
                let what = format!(
                    "{} deleted {base} {namespace}/{name} by name: it had observed the object with uid {known}, but \
                     deleted the one with uid {}, which it had not observed",
                    given(&life.client),
                    shown.uid
                );
                self.violation(DELETES_BY_NAME, what);
            }
            let mut state = self.state();
            state.deleted.entry(key).or_default().insert(shown.uid.clone());
        }
    }
}

/// Collects the effects of actions at one stage, such as before a request. `at` returns the effect of an action.
pub(super) fn effects<E>(actions: &[Action], at: impl Fn(&Action) -> Option<E>) -> Vec<E> {
    actions.iter().filter_map(at).collect()
}

/// Lists the most frequent messages with their counts, one per line.
fn most_frequent(trace: &[Step]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for step in trace {
        let what = match &step.what {
            What::Request(_) | What::Call { .. } => step.subject(),
            What::Event { resource, object, .. } => format!("event {resource} {}", object.trim_matches('/')),
            What::Note(_) => continue,
        };
        *counts.entry(format!("{} {what}", given(&step.client))).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let lines = counts.into_iter().take(CULPRITS);
    lines.map(|(what, count)| format!("\n{count:>7} × {what}")).collect()
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("plan", &self.plan).finish_non_exhaustive()
    }
}
