//! `Gate`: stands between the clients of a run and its server, sees every message, and lets go wrong what the plan
//! says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::Location;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use fake_apiserver::{ApiServer, FaultGuard, Verb};
use tokio::time::{Instant, sleep};

use super::client::GatedService;
use super::externals::Kept;
use super::life::{Life, Shown};
use super::milestones::{Milestone, Mode};
use super::plan::{Action, Plan, escaped, given};
use super::run::{Config, Reference, without_task_ids};
use super::trace::{Delivery, Outcome, Request, Step, What, timeless};
use super::{Check, Oracle, Violation};
use crate::controller::Running;
use crate::test_cluster::{TEST_CLIENT, TestCluster, lock};
use crate::work::Work;

/// The name of the oracle that no run has many more messages than the reference.
pub(crate) const HOT_LOOP: &str = "no hot loop";

/// Requests and events at one instant of virtual time that are a loop which keeps the clock from moving.
const AT_ONE_INSTANT: u64 = 2_000;

/// The time in which as many messages as in a whole run are no hot loop, while nothing is left to do.
const RATE: Duration = Duration::from_secs(120);

/// Most messages that are named when there were too many.
const CULPRITS: usize = 4;

/// The gate of one run.
pub(crate) struct Gate {
    pub(crate) server: ApiServer,
    pub(crate) plan: Plan,
    /// The revision at which the run began.
    pub(crate) base: u64,
    pub(crate) started: Instant,
    /// Requests and events after which the run is a hot loop.
    limit: u64,
    /// Part of `settle` in comparing steps.
    pub(crate) mode: Mode,
    /// The time that a step has to come right.
    pub(crate) within: Duration,
    checks: Arc<[Check]>,
    pub(crate) skipped: BTreeSet<Oracle>,
    /// The changes that count.
    pub(crate) work: Work,
    /// State of the reference run at each settled step; empty in references.
    pub(crate) milestones: Arc<[Milestone]>,
    cluster: OnceLock<Weak<TestCluster>>,
    controllers: Mutex<BTreeMap<Arc<str>, Running>>,
    /// Holds what makes the server's workers take their time.
    pub(crate) workers: Mutex<Option<FaultGuard>>,
    /// Guards all that the run has done so far.
    state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) trace: Vec<Step>,
    /// The named steps of the workload, as they came.
    pub(crate) steps: Vec<String>,
    counts: BTreeMap<String, u32>,
    paused: BTreeMap<Arc<str>, Instant>,
    lagging: BTreeMap<(Arc<str>, String), Instant>,
    lives: BTreeMap<Arc<str>, u32>,
    pub(crate) violations: Vec<Violation>,
    /// End of the last fault that has begun.
    pub(crate) windows_end: Option<Instant>,
    /// Delay of the latest step whose state became right after `within`.
    pub(crate) late_step: Option<std::time::Duration>,
    pub(crate) messages: u64,
    /// Messages that are no hot loop, because the server's workers have given cause for them.
    pub(crate) allowed: u64,
    /// Successful creates and deletes of controllers: the uids by object, those of generated names by what they begin
    /// with.
    pub(crate) created: BTreeMap<String, BTreeSet<String>>,
    pub(crate) deleted: BTreeMap<String, BTreeSet<String>>,
    pub(crate) coverage: BTreeSet<u64>,
    /// Number of times each controller ended by itself and was started again.
    pub(crate) ended: BTreeMap<Arc<str>, u32>,
    /// The first step of the test that began while something went wrong, in words.
    pub(crate) went_on: Option<String>,
    /// Delay after which the end state was right.
    pub(crate) late: Option<Duration>,
    /// Messages at one instant of virtual time.
    at_instant: (Option<Instant>, u64),
    /// Pages that are still to be read, by client and resource.
    pub(crate) pages: BTreeMap<(Arc<str>, String), u32>,
    /// State at each return of `settle`.
    pub(crate) milestones: Vec<Milestone>,
    /// Number of times `settle` returned.
    pub(crate) settled: usize,
    /// The scenario is over.
    pub(crate) is_over: bool,
    /// The scenario ended before its end, since it did not wait for what it needed.
    pub(crate) is_void: bool,
    /// The uids of what each controller made.
    pub(crate) made: BTreeMap<String, Arc<str>>,
    /// The external systems of the scenario.
    pub(crate) externals: BTreeMap<String, Kept>,
    /// `sometimes` checks that have held.
    pub(crate) held: BTreeSet<usize>,
    checked_at: u64,
}

/// A request as the gate registers it.
pub(crate) struct Ticket {
    /// Its place in the trace.
    pub(crate) index: usize,
    /// Faults to apply.
    pub(crate) actions: Vec<Action>,
}

impl Gate {
    pub(crate) fn new(
        server: ApiServer,
        plan: Plan,
        limit: u64,
        config: &Config,
        reference: Option<&Reference>,
        mode: Mode,
    ) -> Self {
        Self {
            base: server.resource_version(),
            server,
            plan,
            started: Instant::now(),
            limit,
            checks: Arc::clone(&config.checks),
            skipped: config.skipped.clone(),
            work: config.work.clone(),
            milestones: reference.map(|it| Arc::clone(&it.milestones)).unwrap_or_default(),
            mode,
            within: config.within,
            cluster: OnceLock::new(),
            controllers: Mutex::default(),
            workers: Mutex::default(),
            state: Mutex::default(),
        }
    }

    /// A client of a new life of the controller `name`.
    pub(crate) fn client(self: &Arc<Self>, name: &str) -> kube::Client {
        kube::Client::new(self.service(name), "default")
    }

    /// Builds the service for a client that goes through the gate.
    pub(crate) fn service(self: &Arc<Self>, name: &str) -> GatedService {
        GatedService::new(self, name)
    }

    /// A named step of the workload begins.
    pub(crate) fn step(&self, name: &str) {
        self.note(&TEST_CLIENT.into(), 0, format!("step: {name}"));
        self.state().steps.push(name.to_owned());
    }

    pub(crate) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Gives the gate the cluster that checks look at.
    pub(crate) fn watch_over(&self, cluster: &Arc<TestCluster>) {
        // A gate has one cluster.
        let _ = self.cluster.set(Arc::downgrade(cluster));
    }

    /// Makes a controller one that crashes can strike.
    pub(crate) fn enter(&self, name: &str, running: &Running) {
        lock(&self.controllers).insert(escaped(name).into(), running.clone());
    }

    /// The names of the controllers that can be restarted.
    pub(crate) fn controllers(&self) -> Vec<Arc<str>> {
        lock(&self.controllers).keys().cloned().collect()
    }

    /// Forgets the controllers, which hold the gate.
    pub(crate) fn leave(&self) {
        lock(&self.controllers).clear();
    }

    /// Returns `true` if the plan leaves out a step of the workload.
    pub(crate) fn skips(&self, step: &str) -> bool {
        self.plan.skipped.iter().any(|it| it == step)
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

    /// A new life of a client.
    pub(crate) fn life(&self, client: &str) -> Arc<Life> {
        let client: Arc<str> = escaped(client).into();
        let number = {
            let mut state = self.state();
            let number = state.lives.entry(Arc::clone(&client)).or_default();
            *number += 1;
            *number
        };
        Arc::new(Life::new(client, number))
    }

    /// Returns the faults to apply at a point, and counts the point.
    pub(crate) fn actions(&self, state: &mut State, stem: String) -> (String, Vec<Action>) {
        let count = match state.counts.get_mut(&stem) {
            Some(count) => {
                *count += 1;
                *count
            }
            None => {
                state.counts.insert(stem.clone(), 1);
                1
            }
        };
        let mut point = stem;
        // Writing to a String does not fail.
        let _ = write!(point, "#{count}");
        let struck = self.plan.faults.iter().filter(|it| it.point == point);
        let actions: Vec<Action> = struck.map(|it| it.action).collect();
        if !actions.is_empty() {
            // A fault without a window is over at once.
            state.windows_end = state.windows_end.max(Some(Instant::now()));
        }
        (point, actions)
    }

    /// Counts a message. One that is too many is a hot loop, whichever it is.
    fn is_too_many(&self, state: &mut State, about: impl FnOnce() -> String) -> bool {
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

    /// The test waits for a time: controllers may send more messages the longer it is.
    pub(crate) fn waits(&self, time: Duration) {
        let more = self.limit.saturating_mul(time.as_secs()) / RATE.as_secs();
        let mut state = self.state();
        state.allowed = state.allowed.saturating_add(more);
    }

    /// Registers a request.
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
        Some(Ticket { index, actions })
    }

    /// Registers an event that is about to be delivered.
    pub(crate) fn event(&self, life: &Life, resource: &str, kind: &str, shown: &Shown) -> Ticket {
        let view = life.view(resource);
        let truth = self.server.resource_version();
        let mut state = self.state();
        let object = format!("{}/{}", shown.namespace, timeless(resource, &shown.name));
        self.is_too_many(&mut state, || format!("the event {kind} of {resource} {object}"));
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
        Ticket { index, actions }
    }

    /// Writes down that a request reaches the server.
    pub(crate) fn reaches(&self, index: usize) {
        let now = self.started.elapsed();
        let mut state = self.state();
        let Some(step) = state.trace.get_mut(index) else { return };
        if let What::Request(request) = &mut step.what
            && step.at < now
        {
            request.reached = Some(now);
        }
    }

    /// Writes down which object a write struck.
    pub(crate) fn struck(&self, about: &Request, index: usize, shown: &Shown) {
        if !about.is_write() || shown.name.is_empty() {
            return;
        }
        let mut state = self.state();
        let Some(step) = state.trace.get_mut(index) else { return };
        if let What::Request(request) = &mut step.what {
            match request.verb {
                Verb::Create => request.creates = Some(timeless(&request.resource, &shown.name).into_owned()),
                _ => {
                    let saw = request.saw.as_ref();
                    request.is_of_another = saw.is_some_and(|it| !shown.uid.is_empty() && *it != shown.uid);
                }
            }
        }
    }

    /// Records the outcome of a request.
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

    /// Writes down that a controller ended by itself, and is started again after a time, if it is.
    pub(crate) fn ended(&self, name: &str, how: &str, back_off: Option<Duration>) {
        let (client, how): (Arc<str>, _) = (escaped(name).into(), without_task_ids(how));
        let life = self.state().lives.get(&client).copied().unwrap_or_default();
        let Some(back_off) = back_off else {
            let what = format!("{how}; it is not restarted (`.restarts()` does that, as a kubelet would)");
            return self.note(&client, life, what);
        };
        self.lasts(back_off);
        self.note(&client, life, format!("{how}; it is restarted after {back_off:?}"));
        *self.state().ended.entry(client).or_default() += 1;
    }

    /// A step of the test at this place begins.
    pub(crate) fn goes_on(&self, place: &Location<'_>) {
        let (now, mut state) = (Instant::now(), self.state());
        let is_first = state.went_on.is_none();
        if let Some(end) = state.windows_end.filter(|end| is_first && *end > now) {
            let [at, until] = [now, end].map(|it| (it - self.started).as_secs_f64());
            state.went_on = Some(format!(
                "the step at {}:{} began after {at:.3} s, and what went wrong was over after {until:.3} s: if the step \
                 needs what came before it, let it wait for that with `eventually`",
                place.file(),
                place.line()
            ));
        }
    }

    /// Returns the end of the faults so far; `None` if the test does not wait for it.
    pub(crate) fn settles_at(&self) -> Option<Instant> {
        let is_early = self.plan.has(|it| it == Action::Early);
        self.state().windows_end.filter(|_| !is_early)
    }

    /// Notes that something lasts until a time.
    pub(crate) fn lasts(&self, time: Duration) {
        let end = Some(Instant::now() + time);
        let mut state = self.state();
        state.windows_end = state.windows_end.max(end);
    }

    /// Cuts a client off.
    pub(crate) fn pause(&self, client: &Arc<str>, time: Duration) {
        self.lasts(time);
        self.state().paused.insert(Arc::clone(client), Instant::now() + time);
    }

    /// The watch of a resource that a client begins next is silent for a time.
    pub(crate) fn lag(&self, life: &Life, resource: &str, time: Duration) {
        self.lasts(time);
        let key = (Arc::clone(&life.client), resource.to_owned());
        self.state().lagging.insert(key, Instant::now() + time);
    }

    /// Until when a watch that begins is silent.
    pub(crate) fn lags(&self, life: &Life, resource: &str) -> Option<Instant> {
        let mut state = self.state();
        if state.lagging.is_empty() {
            return None;
        }
        state.lagging.remove(&(Arc::clone(&life.client), resource.to_owned()))
    }

    /// Until when a client is cut off.
    pub(crate) fn paused(&self, client: &str) -> Option<Instant> {
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

    /// Kills a controller, and starts it again after a time. Answers to its open requests are never delivered.
    pub(crate) fn crash(self: &Arc<Self>, life: &Life, down: Duration) {
        life.end();
        self.note(&life.client, life.number, "crash".to_owned());
        let Some(running) = lock(&self.controllers).get(&life.client).cloned() else {
            return;
        };
        self.lasts(down);
        running.crash();
        tokio::spawn(async move {
            sleep(down).await;
            running.restart();
        });
    }

    /// The number of the life that the controller `name` is in.
    pub(crate) fn life_of(&self, name: &str) -> u32 {
        self.state().lives.get(&*escaped(name)).copied().unwrap_or_default()
    }

    /// Kills the controller `name`, if it can be, and starts it again after a time.
    pub(crate) fn crash_client(self: &Arc<Self>, name: &str, down: Duration) {
        let client: Arc<str> = escaped(name).into();
        self.crash(&Life::new(client, self.life_of(name)), down);
    }

    /// Kills a controller from outside and starts it at once.
    pub(crate) fn restart(&self, client: &str) {
        let running = lock(&self.controllers).get(client).cloned();
        if let Some(running) = running {
            self.note(&client.into(), 0, "restart".to_owned());
            running.restart();
        }
    }

    pub(crate) fn has_checks(&self) -> bool {
        !self.checks.is_empty()
    }

    /// Runs the `always` checks because time has passed, although nothing has changed.
    pub(crate) fn check_time(&self) {
        self.state().checked_at = 0;
        self.check();
    }

    /// Runs the `always` checks if something has changed since they last ran.
    pub(crate) fn check(&self) {
        let revision = self.server.resource_version();
        {
            let mut state = self.state();
            if self.checks.is_empty() || state.checked_at == revision {
                return;
            }
            state.checked_at = revision;
        }
        let Some(cluster) = self.cluster.get().and_then(Weak::upgrade) else {
            return;
        };
        for (index, check) in self.checks.iter().enumerate() {
            let is_known = self.state().held.contains(&index);
            match (check.must_always, check.look(&cluster)) {
                (true, Err(why)) => {
                    let what = format!("{:?} does not hold: {why}", check.name);
                    self.violation("always", what);
                }
                (false, Ok(())) if !is_known => {
                    self.state().held.insert(index);
                }
                (true | false, _) => {}
            }
        }
    }

    /// Writes down that something is wrong, once.
    pub(crate) fn violation(&self, oracle: &'static str, what: String) {
        let mut state = self.state();
        if !state.violations.iter().any(|it| it.oracle == oracle) {
            state.violations.push(Violation::new(oracle, what));
        }
    }

    /// Records the creates and deletes of a controller.
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
            let is_checked = !has_precondition && !self.skipped.contains(&Oracle::DeletesByName);
            let known = life.uid(base, namespace, name);
            if let Some(known) = known.filter(|known| *known != shown.uid && is_checked) {
                let what = format!(
                    "{} deleted {base} {namespace}/{name} by name: it had seen the one with uid {known}, and deleted \
                     the one with uid {}, which it had not seen",
                    given(&life.client),
                    shown.uid
                );
                self.violation("no delete by name of another object", what);
            }
            let mut state = self.state();
            state.deleted.entry(key).or_default().insert(shown.uid.clone());
        }
    }
}

/// The messages that came most often, each with its number, one a line.
fn most_frequent(trace: &[Step]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for step in trace {
        let what = match &step.what {
            What::Request(_) => step.subject(),
            What::Event { resource, object, .. } => format!("event {resource} {}", object.trim_matches('/')),
            What::Call { .. } | What::Note(_) => continue,
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
