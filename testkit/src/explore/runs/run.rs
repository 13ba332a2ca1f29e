//! Executes one run: starts a cluster, runs the scenario with a plan, and collects and judges the outcome.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, select};
use tokio::time::{Instant, sleep, sleep_until};

use super::config::{Config, Mode, MustHold, Role};
use super::digest::digest;
use super::doings::doings;
use super::early::Quiet;
use super::exits::Exits;
use super::harness::Harness;
use super::hasty::Still;
use super::milestones::{STEADY, StepIsWrong};
use super::notes;
use super::world::{Variant, World};
use crate::explore::gate::Gate;
use crate::explore::machine::{WallClock, thread_time};
use crate::explore::oracles::{Facts, Oracle, Restarted, returned};
use crate::explore::outcomes::{
    ASSERTIONS, ENDS, EVENTUALLY, EndState, HOT_LOOP, NO_PANIC, Outcome, Recorded, Reference, Returned, SETTLES,
    Violation, end_differently,
};
use crate::explore::plans::{OnRun, Plan};
use crate::explore::trace::without_task_ids;
use crate::lock::lock;
use crate::mask::{Mask, Upcoming};
use crate::output::Output;
use crate::panics::{hush, message, panicked_at, with_place};
use crate::test_cluster::{Cause, TestCluster};
use crate::work::Counted;
use crate::{seeded_hash, virtual_clock};

/// Interval, in real time, at which a run checks whether it must end.
const LOOK_FOR_STOP: Duration = Duration::from_millis(100);

/// Minimum virtual time that a `Passing` run continues. Schedules of controllers often have slots of one hour.
const PASSING: Duration = Duration::from_secs(3600);

/// Maximum number of messages of a run: `.1` times the messages of the reference, plus `.0`.
const MESSAGES: (u64, u64) = (200, 10);

/// Runs the scenario with a plan. Without a reference, the run is not compared.
pub(crate) fn run(config: &Config, world: &World, plan: &Plan, role: Role, reference: Option<&Reference>) -> Outcome {
    let name = thread::current().name().unwrap_or_default().to_owned();
    lock(&config.current).insert(name.clone(), (WallClock::start(), plan.clone()));
    config.flight.begins(&name, plan);
    let here = || {
        let clock = WallClock::start();
        if !config.timing.is_real {
            seeded_hash::seed_this_thread(seed_of(role));
        }
        let exits = Exits::of(plan);
        let mut outcome = run_here(config, world, plan, role, reference);
        drop(exits);
        outcome.took = match config.timing.is_real {
            true => clock.elapsed(),
            false => thread_time(),
        };
        outcome
    };
    // Each run has its own thread, which resets thread-local state such as the keys of hash maps.
    let outcome = thread::scope(|scope| {
        let run = thread::Builder::new().name(name.clone()).spawn_scoped(scope, here);
        let run = run.unwrap_or_else(|err| panic!("cannot start a thread for a run: {err}"));
        run.join().unwrap_or_else(|payload| resume_unwind(payload))
    });
    lock(&config.current).remove(&name);
    outcome
}

/// Returns the seed of the random numbers of a run. The other reference has a different seed, so that values that
/// controllers generate at random differ and are recognised.
const fn seed_of(role: Role) -> u64 {
    match role {
        Role::Other | Role::OtherResting => 1 << 32,
        Role::Usual | Role::Tried | Role::Shown | Role::Waiting | Role::Resting | Role::Passing => 0,
    }
}

fn run_here(config: &Config, world: &World, plan: &Plan, role: Role, reference: Option<&Reference>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(!config.timing.is_real)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(err) => panic!("cannot create a tokio runtime for the exploration: {err}"),
    };
    let _hushed = hush();
    runtime.block_on(async {
        let run = std::pin::pin!(whole(config, world, plan, role, reference));
        if !config.timing.is_real {
            return run.await.0;
        }
        let (outcome, kept) = match select(run, std::pin::pin!(stopped(config, role))).await {
            Either::Left((judged, _)) => judged,
            // A stopped run is not judged.
            Either::Right(_) => return Outcome::default(),
        };
        // Not inside the future above, because the signal that ends a kept run must not discard its outcome.
        if let Some(linger) = &config.linger {
            linger(&kept.0).await;
        }
        outcome
    })
}

/// Waits until runs of this role must end.
async fn stopped(config: &Config, role: Role) {
    let is_over = || role == Role::Tried && config.is_over.load(Ordering::Relaxed);
    while !config.stop.load(Ordering::Relaxed) && !is_over() {
        sleep(LOOK_FOR_STOP).await;
    }
}

/// Runs the scenario with the faults of the plan, waits for the end state, and collects the outcome. Also returns the
/// cluster with its controllers, which end when it is dropped.
async fn whole(
    config: &Config,
    world: &World,
    plan: &Plan,
    role: Role,
    reference: Option<&Reference>,
) -> (Outcome, (Arc<TestCluster>, Arc<Harness>)) {
    let (multiple, least) = (MESSAGES.1, MESSAGES.0);
    let reference_limit = |it: &Reference| it.outcome.messages * multiple + least;
    let limit = match config.oracles.has(Oracle::HotLoop) {
        false => u64::MAX,
        true => reference.map_or(u64::MAX, reference_limit),
    };
    let is_large = plan.has(OnRun::LargeVersions);
    let variant = match (role, is_large) {
        (Role::Other | Role::OtherResting, _) => Variant::Other,
        (_, true) => Variant::Large,
        (_, false) => Variant::Usual,
    };
    let mode = match (role, reference) {
        (Role::Waiting, _) => Mode::Wait,
        (_, None) => Mode::Keep,
        (_, Some(_)) => Mode::Compare,
    };
    let (cluster, harness) = world.cluster(variant, config.timing.is_real, |server| {
        let gate = Gate::new(server, plan.clone(), limit, config.oracles.has(Oracle::DeletesByName));
        let mut harness = Harness::new(gate, config, reference, mode);
        harness.is_hasty = role == Role::Tried && !config.is_patient.load(Ordering::Relaxed);
        harness
    });
    let cluster = Arc::new(cluster);
    let _clocks = (!config.has_machine_clock).then(|| virtual_clock::start(cluster.server().now()));
    harness.watch_over(&cluster);
    harness.slow_workers();
    harness.watch_workers();
    harness.watch_time();
    // kube-runtime takes the jitter of retries from this thread's generator, which would otherwise be seeded by the
    // real clock.
    fastrand::seed(cluster.seed());
    let run = Run {
        config,
        cluster: &cluster,
        harness: &harness,
        gate: &harness.gate,
        reference,
    };
    let output = (role == Role::Shown).then(|| {
        let gate = Arc::downgrade(&harness);
        run.gate.state().bodies = Some(Default::default());
        Output::record(run.gate.started, move || gate.upgrade().map_or(0, |it| it.gate.place()))
    });
    run.workload().await;
    let (end, late) = run.converge().await;
    harness.inquire().await;
    run.gate.state().late = late;
    run.restarts(plan).await;
    let rested = match role {
        Role::Resting | Role::OtherResting => run.rested(&end).await,
        Role::Usual | Role::Tried | Role::Shown | Role::Other | Role::Waiting | Role::Passing => None,
    };
    let upcoming = match role {
        Role::Passing => run.upcoming(&end).await,
        _ => Upcoming::default(),
    };
    let mut outcome = run.outcome(end, role == Role::Other);
    (outcome.rested, outcome.upcoming) = (rested, upcoming);
    if let Some(output) = output {
        outcome.recorded = Some(Recorded {
            bodies: run.gate.state().bodies.take().unwrap_or_default(),
            marks: output.marks(),
        });
        output.end();
    }
    (outcome, (cluster, harness))
}

/// The violated oracle, and a description.
type Wrong = (&'static str, String);

struct Run<'a> {
    config: &'a Config,
    cluster: &'a TestCluster,
    harness: &'a Harness,
    gate: &'a Gate,
    reference: Option<&'a Reference>,
}

impl Run<'_> {
    async fn workload(&self) {
        let scenario = AssertUnwindSafe((self.config.scenario)(self.cluster, &self.gate.plan)).catch_unwind();
        match select(std::pin::pin!(scenario), std::pin::pin!(self.time_limit())).await {
            Either::Left((Ok(()), _)) => self.gate.state().is_complete = true,
            Either::Left((Err(payload), _)) if payload.is::<StepIsWrong>() => {}
            Either::Left((Err(payload), _)) => self.panicked(&message(payload.as_ref())),
            Either::Right(_) => {
                let time = if self.config.timing.is_real {
                    ""
                } else {
                    " of virtual time"
                };
                let what = format!(
                    "the scenario had not ended after {:?}{time}",
                    self.config.timing.scenario
                );
                self.gate.violation(ENDS, what);
            }
        }
        self.harness.check();
        self.gate.state().is_over = true;
        self.record(self.config.oracles.after_scenario(&self.facts(None)));
    }

    /// Waits until the scenario has taken too long, not counting the pauses after its steps.
    async fn time_limit(&self) {
        let began = Instant::now();
        let mut paused = Duration::ZERO;
        loop {
            sleep_until(began + self.config.timing.scenario + paused).await;
            let all = self.harness.paused();
            if all == paused {
                return;
            }
            paused = all;
        }
    }

    fn facts<'b>(&'b self, returned: Option<&'b Returned>) -> Facts<'b> {
        Facts {
            cluster: self.cluster,
            gate: self.gate,
            reference: self.reference,
            spec: self.config.spec.as_deref(),
            returned,
            within: self.config.within,
        }
    }

    fn record(&self, violations: Vec<Violation>) {
        for violation in violations {
            self.gate.violation(violation.oracle, violation.what);
        }
    }

    fn panicked(&self, text: &str) {
        self.violated(self.cluster.cause_of(text), &with_place(panicked_at(), text));
    }

    /// Records a violation of the oracle for a cause.
    fn violated(&self, cause: Option<Cause>, text: &str) {
        let oracle = match cause {
            Some(Cause::Restless) => SETTLES,
            Some(Cause::AtOneInstant) => HOT_LOOP,
            Some(Cause::ControllerPanicked) => NO_PANIC,
            // The scenario continued before its assertion could hold.
            None if self.continued_early() => {
                self.gate.state().is_void = true;
                return;
            }
            None => ASSERTIONS,
        };
        self.gate.violation(oracle, without_task_ids(text));
    }

    /// Returns `true` if the last wait of the scenario did not wait for the end of the faults.
    fn continued_early(&self) -> bool {
        let waited = self.gate.state().waited;
        self.gate.is_early(waited)
    }

    /// Waits until the cluster has settled. The quiet time begins at `quiet_since`, which may be before the call.
    /// Returns `false` if the cluster does not settle and this fails the run.
    async fn settle_since(&self, quiet_since: Instant) -> bool {
        let settled = self.cluster.settle_since(quiet_since);
        let settled = AssertUnwindSafe(settled).catch_unwind().await;
        let Err(payload) = settled else { return true };
        let text = message(payload.as_ref());
        if self.may_go_on(&text) {
            return true;
        }
        match text.find("the cluster does not settle") {
            // The location is in this file, because the scenario has already ended.
            Some(at) => self.violated(
                self.cluster.cause_of(&text),
                &format!("after the scenario: {}", &text[at..]),
            ),
            None => self.panicked(&text),
        }
        false
    }

    /// Returns `true` if controllers may continue indefinitely: if the hot loop oracle is disabled, or if a spec is
    /// explored. A loop that stops the clock is never permitted.
    fn may_go_on(&self, text: &str) -> bool {
        // A changed spec may be unusable, so that a controller retries indefinitely.
        let is_rest_optional = !self.config.oracles.has(Oracle::HotLoop) || self.config.spec.is_some();
        is_rest_optional && self.cluster.cause_of(text) == Some(Cause::Restless)
    }

    /// Waits for the end of all faults and then for the correct end state, for a limited time. An end state that
    /// becomes correct after `within` is slow but does not fail the run.
    async fn converge(&self) -> (EndState, Option<Duration>) {
        let (mut quiet_since, mut worked, mut wrong) = (None, None, None);
        let (mut looked_at, mut known): (Option<((u64, u64), EndState)>, _) = (None, None);
        let mut still = Still::default();
        loop {
            let is_quiet = match self.harness.quiet_since() {
                Some(Quiet::Over) if looked_at.is_none() => true,
                Some(Quiet::Since(at)) => self.settle_since(at).await,
                Some(Quiet::Over) | None => self.settle_since(Instant::now()).await,
            };
            let windows_end = self.gate.state().windows_end;
            if let Some(end) = windows_end.filter(|end| is_quiet && *end > Instant::now()) {
                sleep(end - Instant::now()).await;
                continue;
            }
            // A fault may affect a retry, which only happens after the cluster has been quiet once.
            let quiet_since = *quiet_since.get_or_insert(Instant::now());
            let over = windows_end.unwrap_or(quiet_since).max(quiet_since);
            self.harness.check();
            // Skip the expensive comparison while nothing changes.
            let now = self.harness.revision();
            let end = match &looked_at {
                Some((at, end)) if *at == now => EndState::clone(end),
                _ => self.harness.end_state(),
            };
            let is_known = looked_at.as_ref().is_some_and(|(at, _)| *at == now);
            looked_at = Some((now, end.clone()));
            if !self.gate.state().violations.is_empty() {
                return (end, None);
            }
            let waited = Instant::now().saturating_duration_since(over);
            let why = match self.is_right(&end, known.take().filter(|_| is_known)).await {
                Ok(()) => {
                    let late = wrong.map(|_: (&str, String)| waited);
                    return (end, late.max(self.gate.state().late_step));
                }
                Err(why) => why,
            };
            known = (!why.0.starts_with(EVENTUALLY)).then(|| why.clone());
            let is_late = waited >= self.config.within;
            // A controller that keeps writing is wrong, not slow.
            let is_busy = worked
                .get_or_insert_with(|| Counted::from(&self.gate.server))
                .up_to_now(&self.config.work, &self.gate.server)
                > MESSAGES.0;
            if is_late && wrong.is_none() {
                wrong = Some(why.clone());
            }
            let is_hopeless = self.harness.is_hopeless(&mut still);
            if !is_quiet || is_busy || is_hopeless || waited >= self.config.within + self.harness.slow() {
                let (oracle, why) = wrong.unwrap_or(why);
                self.gate.violation(oracle, why);
                return (end, None);
            }
            let [soon, later] = self.config.timing.look_again;
            let pause = if is_late { later } else { soon };
            self.gate.waits(pause);
            sleep(pause).await;
        }
    }

    /// Advances the time by `within` after the end of the run. Returns the new state if it differs from `end` and then
    /// stays unchanged for a quarter of an hour; otherwise `None`.
    async fn rested(&self, end: &EndState) -> Option<EndState> {
        sleep(self.config.within).await;
        let mask = Mask::of(&self.config.work.ignored);
        let state = || self.harness.end_state();
        let rested = state();
        let is_same = |one: &EndState, other: &EndState| one.compare(other, &mask).is_empty();
        if is_same(end, &rested) {
            return None;
        }
        sleep(STEADY).await;
        is_same(&rested, &state()).then_some(rested)
    }

    /// Lets as much time pass as the run has taken, but at least `PASSING`. Returns the objects with a time in their
    /// names that controllers have created meanwhile.
    async fn upcoming(&self, end: &EndState) -> Upcoming {
        let until = Instant::now() + self.gate.started.elapsed().max(PASSING);
        let known = end.newest_of_series();
        let (mut upcoming, mut looked_at) = (BTreeMap::new(), self.harness.revision());
        while Instant::now() < until {
            sleep(self.config.timing.look_again[0]).await;
            if self.harness.revision() != looked_at {
                looked_at = self.harness.revision();
                upcoming.append(&mut self.harness.end_state().newest_of_series());
            }
        }
        upcoming.retain(|key, _| !known.contains_key(key));
        upcoming.into()
    }

    /// Checks the end state. `known` is the violation that an earlier check of the same state found, if any.
    async fn is_right(&self, end: &EndState, known: Option<Wrong>) -> Result<(), Wrong> {
        if self.gate.state().is_void {
            return self.is_right_where_it_ended(end);
        }
        if let Some(known) = known {
            return Err(known);
        }
        if let Some(wrong) = self.config.oracles.not_right(&self.facts(None), end) {
            return Err((wrong.oracle, wrong.what));
        }
        for check in &self.config.at_last {
            if let Err(why) = check.look(self.cluster) {
                let oracle = check.oracle.unwrap_or(EVENTUALLY);
                return Err((oracle, format!("`eventually` failed: {:?}: {why}", check.name)));
            }
        }
        let inquiries = self.config.inquiries.iter();
        for inquiry in inquiries.filter(|it| it.must_hold == MustHold::Eventually) {
            if let Err(why) = (inquiry.look)(self.cluster).await {
                return Err((
                    inquiry.oracle,
                    format!("`eventually` failed: {:?}: {why}", inquiry.name),
                ));
            }
        }
        Ok(())
    }

    /// Checks the end state if the scenario ended early, at an assertion that did not wait.
    fn is_right_where_it_ended(&self, end: &EndState) -> Result<(), Wrong> {
        if !self.config.oracles.has(Oracle::EndState) {
            return Ok(());
        }
        match self.harness.compare_where_it_ended(end) {
            None => {
                self.gate.state().is_unjudged = true;
                Ok(())
            }
            Some(differences) if differences.is_empty() => Ok(()),
            Some(differences) => Err((
                Oracle::EndState.name(),
                format!(
                    "{}\n  {}",
                    end_differently(self.config.within),
                    differences.join("\n  ")
                ),
            )),
        }
    }

    /// Restarts controllers after all work has been done, to check that this does not change anything.
    async fn restarts(&self, plan: &Plan) {
        for fault in plan
            .faults
            .iter()
            .filter(|it| it.action.effects().run == Some(OnRun::RestartAtEnd))
        {
            let (revision, steps) = (self.gate.server.resource_version(), self.gate.state().trace.len());
            let (client, before) = (&fault.point, self.harness.end_state());
            self.harness.restart(client);
            self.settle_since(Instant::now()).await;
            let restarted = Restarted {
                client,
                before,
                revision,
                steps,
            };
            self.record(self.config.oracles.after_restart(&self.facts(None), &restarted));
        }
    }

    fn outcome(&self, end: EndState, is_other: bool) -> Outcome {
        let returned = self.returned();
        self.record(self.config.oracles.at_the_end(&self.facts(Some(&returned))));
        let controllers = self.harness.controllers();
        if let Some(why) = self.cluster.injections.unserved(&self.gate.server) {
            self.gate.violation(ASSERTIONS, why);
        }
        let notes = match self.reference {
            // In this run the server's clock differs from the machine's, so times of the machine's clock are
            // recognised.
            None if is_other => notes::of_clocks(self.cluster, self.config.began),
            None => notes::of_the_scenario(self.cluster),
            Some(_) => Vec::new(),
        };
        let is_told = self.reference.is_none() || !self.gate.state().violations.is_empty();
        let doings = if is_told { doings(self.cluster) } else { Vec::new() };
        let digest = match self.config.has_digests {
            true => digest(self.cluster),
            false => 0,
        };
        let state = &mut *self.gate.state();
        Outcome {
            digest,
            took: Duration::ZERO,
            recorded: None,
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
            upcoming: Upcoming::default(),
            milestones: std::mem::take(&mut state.milestones),
            waited: state.waited,
            settled_times: std::mem::take(&mut state.settled_times),
            is_unjudged: state.is_unjudged,
            is_hasty: state.is_hasty,
            wrong_step: state.wrong_step,
            void_at: state.is_void.then_some(state.waited),
            patient_from: self.gate.plan.patient_from,
            permuted: std::mem::take(&mut state.permuted),
            unlike: std::mem::take(&mut state.unlike),
            failure_counts: std::mem::take(&mut state.failure_counts),
            is_complete: state.is_complete,
            faults_begin: state.faults_begin,
            faults_end: state
                .windows_end
                .map(|end| end.saturating_duration_since(self.gate.started)),
            returned,
            times: self.facts(None).times(),
            controllers,
            doings,
            output: std::mem::take(&mut state.output).into(),
            notes,
            fixed: self.cluster.controllers.fixed(),
            went_on: state.went_on.take(),
            late: state.late,
            ended: std::mem::take(&mut state.ended),
        }
    }

    /// Returns the fields that returned to an earlier value.
    fn returned(&self) -> Returned {
        // A rollback by the user is expected.
        match self.config.oracles.has(Oracle::Rollback) && !self.gate.plan.is_sequence() {
            true => returned(&self.gate.server, self.gate.base, &self.config.work),
            false => Returned::new(),
        }
    }
}
