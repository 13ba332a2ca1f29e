//! One run: a world, a plan, the scenario, the outcome and its judgement.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, LocalBoxFuture, select};
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::cluster::{Variant, World};
use super::end_state::{EndState, Mask};
use super::externals::{self, Externals};
use super::flight::Flight;
use super::gate::{Gate, HOT_LOOP};
use super::milestones::{Milestone, Mode, STEADY, StepIsWrong};
use super::plan::{Action, Plan, given};
use super::progress::{WallClock, thread_time};
use super::spec::BACK;
use super::spec::Spec;
use super::times::{ForeignTime, foreign_times};
use super::trace::{Step, What};
use super::{Check, Oracle, Violation, rollback, seeded_hash};
use crate::controller::message;
use crate::eventually::{hush, panicked_at};
use crate::test_cluster::{Cause, TestCluster, lock};
use crate::work::Work;

/// The virtual time after which a scenario is given up.
const SCENARIO_BOUND: Duration = Duration::from_secs(4 * 3600);

/// Interval at which the end state is compared while it is not yet right, and when it is late.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
const LOOK_LATE: Duration = Duration::from_secs(60);

/// Limit after which a late end state is wrong. Up to it the end state is only slow.
pub(super) const SLOW: Duration = Duration::from_secs(3600);

/// Most messages of a run beyond the reference's, and most as a multiple of the reference's.
const MESSAGES: (u64, u64) = (200, 10);

/// The scenario, with its type erased.
pub(crate) type Scenario = Box<dyn for<'a> Fn(&'a TestCluster) -> LocalBoxFuture<'a, ()> + Send + Sync>;

/// The runs in progress by the names of their threads, with the time at which they began.
pub(crate) type Current = Arc<Mutex<BTreeMap<String, (WallClock, Plan)>>>;

/// Configuration shared by all runs of an exploration.
pub(crate) struct Config {
    pub(crate) scenario: Scenario,
    /// The `always` and `sometimes` checks.
    pub(crate) checks: Arc<[Check]>,
    /// The `eventually` checks.
    pub(crate) at_last: Vec<Check>,
    /// Virtual time from the last fault to convergence.
    pub(crate) within: Duration,
    /// Fields that are not compared.
    pub(crate) ignored: Vec<String>,
    /// The changes that count.
    pub(crate) work: Work,
    pub(crate) skipped: BTreeSet<Oracle>,
    /// The object whose spec is changed, if that is what is explored.
    pub(crate) spec: Option<Arc<Spec>>,
    /// Keeps the runs in progress on disk, for when the process ends.
    pub(crate) flight: Flight,
    /// The machine's time of day when the exploration began.
    pub(crate) began: Timestamp,
    /// Set if everything sent is hashed, so that two runs can be compared to the byte.
    pub(crate) has_digests: bool,
    /// The runs in progress and their start times.
    pub(crate) current: Current,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("checks", &self.checks)
            .finish_non_exhaustive()
    }
}

/// Outcome of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) violations: Vec<Violation>,
    pub(crate) trace: Vec<Step>,
    pub(crate) steps: Vec<String>,
    pub(crate) coverage: BTreeSet<u64>,
    pub(crate) held: BTreeSet<usize>,
    pub(crate) end: EndState,
    /// The end after time has gone on, where that is asked and it is another one.
    pub(crate) rested: Option<EndState>,
    pub(crate) milestones: Vec<Milestone>,
    /// Number of times the scenario settled.
    pub(crate) settled: usize,
    /// Contents of the external systems.
    pub(crate) externals: Externals,
    /// Fields that took a value they had left.
    pub(crate) returned: BTreeMap<(String, String), String>,
    pub(crate) created: BTreeMap<String, BTreeSet<String>>,
    pub(crate) deleted: BTreeMap<String, BTreeSet<String>>,
    pub(crate) messages: u64,
    /// The clients that can be crashed.
    pub(crate) controllers: Vec<Arc<str>>,
    /// Actions of the test itself, with their times.
    pub(crate) doings: Vec<(Duration, String)>,
    /// Notes for the author: places where the scenario does less than it seems to. Of references alone.
    pub(crate) notes: Vec<String>,
    /// Controllers that cannot be crashed, by the place in the test that started them.
    pub(crate) fixed: Vec<String>,
    /// Time from the last fault to the right end state, if that was too long.
    pub(crate) late: Option<Duration>,
    /// The first step of the test that began while something went wrong, in words.
    pub(crate) went_on: Option<String>,
    /// Number of times controllers ended by themselves and were started again.
    pub(crate) ended: BTreeMap<Arc<str>, u32>,
    /// Stands for every byte that was sent, if the configuration asks for it.
    pub(crate) digest: u64,
    /// The processor time it took.
    pub(crate) took: Duration,
}

/// The run in which nothing went wrong.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    pub(crate) outcome: Outcome,
    pub(crate) mask: Mask,
    /// State each time the scenario has settled.
    pub(crate) milestones: Arc<[Milestone]>,
}

/// Purpose of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Usual,
    /// The reference with other uids and at another time of day.
    Other,
    /// The reference that waits at each settled step whether anything changes by itself.
    Waiting,
    /// The reference, or that with other uids, that waits in the end until nothing changes by itself.
    Resting,
    OtherResting,
}

/// A text without the numbers of tokio's tasks, which are counted through all runs of a process: `Id(12)` → `Id(…)`.
pub(super) fn without_task_ids(text: &str) -> String {
    let mut parts = text.split("Id(");
    let mut left: String = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|it: char| it.is_ascii_digit());
        let is_id = rest.len() < part.len() && rest.starts_with(')');
        left.push_str(if is_id { "Id(…" } else { "Id(" });
        left.push_str(if is_id { rest } else { part });
    }
    left
}

/// Makes a run. Without a reference the run is not compared.
pub(crate) fn run(config: &Config, world: &World, plan: &Plan, role: Role, reference: Option<&Reference>) -> Outcome {
    let name = thread::current().name().unwrap_or_default().to_owned();
    lock(&config.current).insert(name.clone(), (WallClock::start(), plan.clone()));
    config.flight.begins(&name, plan);
    let here = || {
        seeded_hash::seed_this_thread();
        let mut outcome = run_here(config, world, plan, role, reference);
        outcome.took = thread_time();
        outcome
    };
    // State of the thread, such as the keys of hash maps, is reset for each run.
    let outcome = thread::scope(|scope| {
        let run = thread::Builder::new().name(name.clone()).spawn_scoped(scope, here);
        let run = run.unwrap_or_else(|err| panic!("a run needs a thread: {err}"));
        run.join().unwrap_or_else(|payload| resume_unwind(payload))
    });
    lock(&config.current).remove(&name);
    outcome
}

fn run_here(config: &Config, world: &World, plan: &Plan, role: Role, reference: Option<&Reference>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(err) => panic!("an exploration needs tokio runtimes: {err}"),
    };
    let _hushed = hush();
    let (multiple, least) = (MESSAGES.1, MESSAGES.0);
    let reference_limit = |it: &Reference| it.outcome.messages * multiple + least;
    let limit = match config.skipped.contains(&Oracle::HotLoop) {
        true => u64::MAX,
        false => reference.map_or(u64::MAX, reference_limit),
    };
    runtime.block_on(async {
        let is_large = plan.has(|it| it == Action::LargeVersions);
        let variant = match (role, is_large) {
            (Role::Other | Role::OtherResting, _) => Variant::Other,
            (Role::Usual | Role::Waiting | Role::Resting, true) => Variant::Large,
            (Role::Usual | Role::Waiting | Role::Resting, false) => Variant::Usual,
        };
        let mode = match (role, reference) {
            (Role::Waiting, _) => Mode::Wait,
            (_, None) => Mode::Keep,
            (_, Some(_)) => Mode::Compare,
        };
        let cluster = TestCluster::explored(world, variant, |server| {
            Gate::new(server, plan.clone(), limit, config, reference, mode)
        });
        let cluster = Arc::new(cluster);
        let Some(gate) = cluster.gate.clone() else {
            unreachable!("explored clusters have one")
        };
        gate.watch_over(&cluster);
        gate.slow_workers();
        gate.watch_workers();
        gate.watch_time();
        // From this thread's generator come the pauses of kube-runtime's retries; else it is seeded by the real clock.
        fastrand::seed(cluster.seed());
        let run = Run {
            config,
            cluster: &cluster,
            gate: &gate,
            reference,
        };
        run.workload().await;
        let (end, late) = run.converge().await;
        run.gate.state().late = late;
        run.restarts(plan).await;
        let rested = match role {
            Role::Resting | Role::OtherResting => run.rested(&end).await,
            Role::Usual | Role::Other | Role::Waiting => None,
        };
        let mut outcome = run.outcome(end, role == Role::Other);
        outcome.rested = rested;
        outcome
    })
}

/// The oracle that is violated, and how.
type Wrong = (&'static str, String);

/// The name of the oracle that controllers come to rest. A retry every few seconds that always fails is no hot loop.
const RESTLESS: &str = "it settles";

/// The name of the oracle of the user's conditions, which may look at the time as well.
const EVENTUALLY: &str = "eventually";

struct Run<'a> {
    config: &'a Config,
    cluster: &'a TestCluster,
    gate: &'a Arc<Gate>,
    reference: Option<&'a Reference>,
}

impl Run<'_> {
    async fn workload(&self) {
        let scenario = AssertUnwindSafe((self.config.scenario)(self.cluster)).catch_unwind();
        match select(std::pin::pin!(scenario), std::pin::pin!(sleep(SCENARIO_BOUND))).await {
            Either::Left((Ok(()), _)) => {}
            Either::Left((Err(payload), _)) if payload.is::<StepIsWrong>() => {}
            Either::Left((Err(payload), _)) => self.panicked(&message(payload.as_ref())),
            Either::Right(_) => {
                let what = format!("the scenario was still waiting after {SCENARIO_BOUND:?} of virtual time");
                self.gate.violation("the scenario ends", what);
            }
        }
        self.gate.check();
        self.gate.state().is_over = true;
        if let Some(unread) = self.gate.unread_pages() {
            self.gate.violation(unread.oracle, unread.what);
        }
    }

    fn panicked(&self, text: &str) {
        let cause = self.cluster.cause_of(text);
        let oracle = match cause {
            Some(Cause::Restless) => RESTLESS,
            Some(Cause::AtOneInstant) => HOT_LOOP,
            Some(Cause::ControllerPanicked) => "no panic",
            // The step continued before its assertion could hold.
            None if self.gate.plan.has(|it| it == Action::Early) => {
                self.gate.state().is_void = true;
                return;
            }
            None => "the scenario's own assertions",
        };
        // The testkit's own failures name the line of the test.
        let place = panicked_at().filter(|_| cause.is_none());
        let text = place.map_or_else(|| text.to_owned(), |place| format!("{place}: {text}"));
        self.gate.violation(oracle, without_task_ids(&text));
    }

    async fn settle(&self) -> bool {
        let settled = AssertUnwindSafe(self.cluster.settle()).catch_unwind().await;
        let Err(payload) = settled else { return true };
        let text = message(payload.as_ref());
        if self.may_go_on(&text) {
            return true;
        }
        self.panicked(&text);
        false
    }

    /// Returns `true` if a controller that never rests is accepted, since hot loops do not count. One that keeps the
    /// clock from moving never is.
    fn may_go_on(&self, text: &str) -> bool {
        // A spec may be one that nothing can be done for.
        let is_rest_optional = self.config.skipped.contains(&Oracle::HotLoop) || self.config.spec.is_some();
        is_rest_optional && self.cluster.cause_of(text) == Some(Cause::Restless)
    }

    /// Waits until all faults are over and the end state is right, or until it is too late. What is right only after
    /// `within` is slow, and no failure.
    async fn converge(&self) -> (EndState, Option<Duration>) {
        let (mut quiet_since, mut quiet_at, mut wrong) = (None, None, None);
        let (mut looked_at, mut known): (Option<(u64, EndState)>, _) = (None, None);
        loop {
            let is_quiet = self.settle().await;
            let windows_end = self.gate.state().windows_end;
            if let Some(end) = windows_end.filter(|end| is_quiet && *end > Instant::now()) {
                sleep(end - Instant::now()).await;
                continue;
            }
            // A fault may strike a retry, which comes after the first quiet moment.
            let quiet_since = *quiet_since.get_or_insert(Instant::now());
            let over = windows_end.unwrap_or(quiet_since).max(quiet_since);
            self.gate.check();
            // Comparing costs more than all else while nothing happens.
            let revision = self.gate.server.resource_version();
            let end = match &looked_at {
                Some((at, end)) if *at == revision => EndState::clone(end),
                _ => self.gate.end_state(),
            };
            let is_known = looked_at.as_ref().is_some_and(|(at, _)| *at == revision);
            looked_at = Some((revision, end.clone()));
            if !self.gate.state().violations.is_empty() {
                return (end, None);
            }
            let waited = Instant::now().saturating_duration_since(over);
            let why = match self.is_right(&end, known.take().filter(|_| is_known)) {
                Ok(()) => {
                    let late = wrong.map(|_: (&str, String)| waited);
                    return (end, late.max(self.gate.state().late_step));
                }
                Err(why) => why,
            };
            known = (why.0 != EVENTUALLY).then(|| why.clone());
            let is_late = waited >= self.config.within;
            // A controller that goes on writing is not slow.
            let quiet_at = *quiet_at.get_or_insert(revision);
            let is_busy = revision - quiet_at > MESSAGES.0
                && self.gate.work.since(&self.gate.server, quiet_at).count > MESSAGES.0;
            if is_late && wrong.is_none() {
                wrong = Some(why.clone());
            }
            if !is_quiet || is_busy || waited >= self.config.within + SLOW {
                let (oracle, why) = wrong.unwrap_or(why);
                self.gate.violation(oracle, why);
                return (end, None);
            }
            let pause = if is_late { LOOK_LATE } else { LOOK_AGAIN };
            self.gate.waits(pause);
            sleep(pause).await;
        }
    }

    /// Lets time go on after the end; returns the state in which nothing changes any more, if that is another one.
    async fn rested(&self, end: &EndState) -> Option<EndState> {
        sleep(self.config.within).await;
        let mask = Mask::of(&self.config.work.ignored);
        let state = || self.gate.end_state();
        let rested = state();
        let is_same = |one: &EndState, other: &EndState| one.compare(other, &mask).is_empty();
        if is_same(end, &rested) {
            return None;
        }
        sleep(STEADY).await;
        is_same(&rested, &state()).then_some(rested)
    }

    /// Returns what is not yet right; `known` is that of the same state, looked at before.
    fn is_right(&self, end: &EndState, known: Option<Wrong>) -> Result<(), Wrong> {
        if self.gate.state().is_void {
            return Ok(());
        }
        if let Some(known) = known {
            return Err(known);
        }
        if let Some(reference) = self.reference
            && !self.config.skipped.contains(&Oracle::EndState)
        {
            let mut differences = match self.gate.plan.is_sequence() {
                true => reference.outcome.end.compare_decided(end, &reference.mask),
                false => reference.outcome.end.compare(end, &reference.mask),
            };
            differences.extend(externals::differences(
                &reference.outcome.externals,
                &self.gate.externals(),
            ));
            if !differences.is_empty() {
                let within = self.config.within;
                let text = differences.join("\n  ");
                if self.gate.plan.is_sequence() {
                    let (oracle, object) = match self.gate.plan.changes.last().is_some_and(|it| it == BACK) {
                        true => ("recovery", "a fresh object with the first spec"),
                        false => ("path independence", "a fresh object with the same spec"),
                    };
                    return Err((
                        oracle,
                        format!("after {within:?} the end still differs from that of {object}:\n  {text}"),
                    ));
                }
                return Err((
                    "end state",
                    format!("still differs from the reference after {within:?}:\n  {text}"),
                ));
            }
        }
        // A controller that cannot follow the spec is right to say so.
        if let (Some(spec), Some(reference)) = (&self.config.spec, self.reference)
            && spec.unobserved(&reference.outcome.end).is_none()
            && !self.config.skipped.contains(&Oracle::ObservedGeneration)
            && let Some(what) = spec.unobserved(end)
        {
            return Err(("observed generation", what));
        }
        for check in &self.config.at_last {
            if let Err(why) = check.look(self.cluster) {
                return Err((EVENTUALLY, format!("`eventually` failed: {:?}: {why}", check.name)));
            }
        }
        Ok(())
    }

    /// Starts controllers anew when all is done: they should find nothing to do.
    async fn restarts(&self, plan: &Plan) {
        for fault in plan.faults.iter().filter(|it| it.action == Action::RestartAtEnd) {
            let before = self.gate.server.resource_version();
            let seen = self.gate.state().trace.len();
            self.gate.restart(&fault.point);
            self.settle().await;
            let done = self.gate.work.since(&self.gate.server, before);
            if done.count > 0 && !self.config.skipped.contains(&Oracle::Idempotence) {
                let state = self.gate.state();
                let writes = state.trace[seen..].iter().filter(|it| match &it.what {
                    What::Request(request) => request.is_write(),
                    What::Event { .. } | What::Call { .. } | What::Note(_) => false,
                });
                let writes: Vec<String> = writes.take(5).map(Step::subject).collect();
                let changed = self.gate.end_state().written_after(before).join(", ");
                drop(state);
                let what = format!(
                    "after a restart with all work done, {} changed {changed}: {}",
                    given(&fault.point),
                    writes.join(", ")
                );
                self.gate.violation("idempotence", what);
            }
        }
    }

    fn outcome(&self, end: EndState, is_other: bool) -> Outcome {
        let returned = self.oracles();
        if !self.config.skipped.contains(&Oracle::CreatesAndDeletes) {
            self.compare_summary();
        }
        let controllers = self.gate.controllers();
        if let Some(why) = self.cluster.injections.unserved(&self.gate.server) {
            self.gate.violation("the scenario's own assertions", why);
        }
        let notes = match self.reference {
            // Its clock is far from the machine's.
            None if is_other => self.clock_notes(),
            None => self.notes(),
            Some(_) => Vec::new(),
        };
        let is_told = self.reference.is_none() || !self.gate.state().violations.is_empty();
        let doings = if is_told {
            super::report::doings(self.cluster)
        } else {
            Vec::new()
        };
        let digest = match self.config.has_digests {
            true => super::replays::digest(self.cluster),
            false => 0,
        };
        let externals = self.gate.externals();
        let state = &mut *self.gate.state();
        Outcome {
            digest,
            took: Duration::ZERO,
            violations: std::mem::take(&mut state.violations),
            trace: std::mem::take(&mut state.trace),
            steps: std::mem::take(&mut state.steps),
            coverage: std::mem::take(&mut state.coverage),
            held: std::mem::take(&mut state.held),
            created: std::mem::take(&mut state.created),
            deleted: std::mem::take(&mut state.deleted),
            messages: state.messages,
            end,
            rested: None,
            milestones: std::mem::take(&mut state.milestones),
            settled: state.settled,
            externals,
            returned,
            controllers,
            doings,
            notes,
            fixed: self.cluster.controllers.fixed(),
            went_on: state.went_on.take(),
            late: state.late,
            ended: std::mem::take(&mut state.ended),
        }
    }

    /// Applies the oracles that need no reference; returns the fields that took a value they had left.
    fn oracles(&self) -> BTreeMap<(String, String), String> {
        if self.reference.is_none()
            && let Some(unowned) = self.gate.unowned()
        {
            self.gate.violation(unowned.oracle, unowned.what);
        }
        // A user's own rollback is expected.
        let is_exempt = self.gate.state().is_void || self.gate.plan.is_sequence();
        if self.config.skipped.contains(&Oracle::Rollback) || is_exempt {
            return BTreeMap::new();
        }
        let returned = rollback::returned(&self.gate.server, self.gate.base, &self.gate.work);
        // A client with an older state acts on it, and a late write is based on an old one.
        let is_shown_old = |it| {
            matches!(
                it,
                Action::Stale(_) | Action::Late(_) | Action::CrashLate(_) | Action::Delay(_)
            )
        };
        if let Some(reference) = self.reference
            && !self.gate.plan.has(is_shown_old)
            && let Some(((object, field), how)) = returned
                .iter()
                .find(|(it, _)| !reference.outcome.returned.contains_key(*it))
        {
            self.gate
                .violation("no field goes back", format!("{object} {field} {how}"));
        }
        returned
    }

    /// Lists places where the scenario does less than it seems to.
    fn notes(&self) -> Vec<String> {
        let cannot = |place| {
            format!(
                "the controller started at {place} by `run` is never crashed, since it cannot be started again: use \
                 `cluster.controller(\"name\", |client| …)`"
            )
        };
        let fixed = self.cluster.controllers.fixed().into_iter().map(cannot);
        fixed.chain(self.cluster.injections.idle()).collect()
    }

    /// Times that controllers wrote and that are the machine's rather than the server's.
    fn clock_notes(&self) -> Vec<String> {
        let foreign = foreign_times(self.cluster, self.config.began);
        let note = |it: ForeignTime| {
            format!(
                "{} wrote {} into {} at {} when the cluster's time was {}: it reads another clock than the server's, \
                 which goes by virtual time; let it take `cluster.server().now()`",
                it.client, it.time, it.object, it.path, it.now
            )
        };
        foreign.into_iter().map(note).collect()
    }

    /// No object may be created or deleted more often than in the reference.
    fn compare_summary(&self) {
        let Some(reference) = self.reference else { return };
        let more = {
            let state = self.gate.state();
            let more =
                |did: &str, found: &BTreeMap<String, BTreeSet<String>>, known: &BTreeMap<String, BTreeSet<String>>| {
                    found.iter().find_map(|(key, uids)| {
                        let (now, before) = (uids.len(), known.get(key).map_or(0, BTreeSet::len));
                        (now > before)
                            .then(|| format!("{key} was {did} {now} times, and {before} times in the reference run"))
                    })
                };
            more("created", &state.created, &reference.outcome.created)
                .or_else(|| more("deleted", &state.deleted, &reference.outcome.deleted))
        };
        // A changed object may be created again.
        let is_void = self.gate.state().is_void || self.gate.plan.is_sequence();
        if let Some(more) = more.filter(|_| !is_void) {
            self.gate.violation("creates and deletes", more);
        }
    }
}
