//! `Explore`: the scenario, the options and the bounds of an exploration.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::machine::{Activity, WallClock, is_stuck, time_of_day};
use super::oracles::{Oracle, Oracles};
use super::outcomes::{CRASHABLE, EXPLORABLE, Finding, Outcome, Reference, Violation};
use super::plans::{Faults, Kind, Plan};
use super::reports::{MERGE, Merged, Progress, Report, merged};
use super::runs::{Check, Config, Flight, Scenario, Timing, World, reference, show};
use super::search::{Asides, Coverage, Failures, Kinds, Limits, Runs, Search, Shard, Stop, replays};
use super::specs::Spec;
use crate::eventually::Condition;
use crate::test_cluster::{TestCluster, TestClusterBuilder};
use crate::work::Work;

/// Environment variable that contains a replay string.
const REPLAY: &str = "EXPLORE_REPLAY";

/// Interval at which the test's thread updates the progress line and checks for stuck runs.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// Builder of an exploration, from [`explore`].
#[derive(Debug)]
#[must_use = "nothing is explored until `run` is called"]
pub struct Explore {
    config: Config,
    world: TestClusterBuilder,
    faults: Faults,
    limits: Limits,
    /// Replay strings of the runs to execute before the search.
    replays: Vec<String>,
    /// Number of times each replay is run.
    times: u64,
    at_random: Option<u64>,
    requires_all_singles: bool,
    threads: usize,
    shard: Shard,
}

#[doc = include_str!("guide.md")]
pub fn explore<S>(scenario: S) -> Explore
where
    S: AsyncFn(&TestCluster) + Send + Sync + 'static,
{
    let scenario = Arc::new(scenario);
    explore_planned(Box::new(move |cluster, _| {
        let scenario = Arc::clone(&scenario);
        Box::pin(async move { scenario(cluster).await })
    }))
}

/// Explores a scenario that also receives the plan of each run.
pub(crate) fn explore_planned(scenario: Scenario) -> Explore {
    Explore {
        config: Config {
            scenario,
            has_machine_clock: false,
            checks: Arc::new([]),
            at_last: Vec::new(),
            inquiries: Arc::new([]),
            timing: Timing::VIRTUAL,
            stop: Arc::default(),
            is_over: AtomicBool::default(),
            is_patient: AtomicBool::default(),
            linger: None,
            within: Duration::from_secs(900),
            ignored: Vec::new(),
            work: Work::default(),
            oracles: Oracles::default(),
            has_digests: false,
            began: time_of_day(),
            flight: Flight::new(),
            spec: None,
            current: Arc::default(),
        },
        world: TestClusterBuilder::default(),
        faults: Faults::all(),
        limits: Limits {
            time: Duration::from_secs(10),
            clock: None,
            schedules: 2_000,
        },
        replays: Vec::new(),
        times: 1,
        at_random: None,
        requires_all_singles: false,
        shard: Shard::of_environment(),
        threads: std::thread::available_parallelism().map_or(1, NonZero::get),
    }
}

impl Explore {
    /// Explores changes to an object's spec.
    pub(crate) fn of_spec(mut self, spec: Arc<Spec>) -> Self {
        self.config.spec = Some(spec);
        self
    }

    /// Sets the cluster with which every run begins. It is built once; starting a run from it takes as long for ten
    /// thousand objects as for ten. Default: [`TestCluster::start`].
    pub fn cluster(mut self, cluster: TestClusterBuilder) -> Self {
        self.world = cluster;
        self
    }

    /// Selects the kinds of faults, joined by `|`: [`crashes`](super::crashes), [`errors`](super::errors),
    /// [`stale_watches`](super::stale_watches), [`delays`](super::delays), [`pauses`](super::pauses),
    /// [`clock_skew`](super::clock_skew), [`variants`](super::variants) and [`overlaps`](super::overlaps). Default: all
    /// of them.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Adds a check that must hold after every write, and at intervals of virtual time, in every run. It is evaluated
    /// when a write request from a client, the test or a worker of the server has completed. A write through
    /// [`TestCluster::server`] does not send a request; it is checked at the next request, event or interval. While
    /// time passes, the check is evaluated every second at first, later at intervals of 1 % of the elapsed time. It may
    /// assert; see [`Condition`].
    pub fn always<C: Condition>(self, name: &str, check: impl Fn(&TestCluster) -> C + Send + Sync + 'static) -> Self {
        self.check(name, true, check)
    }

    /// Adds a check that must hold at least once in at least one run. It is evaluated at the same times as
    /// [`always`](Self::always). Use it to verify that the tested behaviour occurs at all.
    pub fn sometimes<C: Condition>(
        self,
        name: &str,
        check: impl Fn(&TestCluster) -> C + Send + Sync + 'static,
    ) -> Self {
        self.check(name, false, check)
    }

    /// Adds a check of the end state, which must hold within the time set by [`within`](Self::within) in every run.
    pub fn eventually<C: Condition>(
        mut self,
        name: &str,
        check: impl Fn(&TestCluster) -> C + Send + Sync + 'static,
    ) -> Self {
        self.config.at_last.push(condition(name, true, check));
        self
    }

    fn check<C: Condition>(
        mut self,
        name: &str,
        must_always: bool,
        check: impl Fn(&TestCluster) -> C + Send + Sync + 'static,
    ) -> Self {
        let mut checks = self.config.checks.to_vec();
        checks.push(condition(name, must_always, check));
        self.config.checks = checks.into();
        self
    }

    /// Sets the virtual time within which the end state must be correct, counted from the end of the last fault, or
    /// from the time at which the cluster has settled after the scenario if that is later. An end state that becomes
    /// correct up to an hour after the limit is slow: it does not fail the run, but is noted in the report. Default: 15
    /// minutes, which is sufficient for three reconciles of a controller that requeues after 300 s.
    pub fn within(mut self, time: Duration) -> Self {
        self.config.within = time;
        self
    }

    /// Ignores a field of the end state in all resources, such as `status.attempts` or `status.conditions.*.message`. A
    /// list index, or a map key that only consists of digits, stands for all of them, like `*`. The field may also
    /// return to an earlier value. A controller that keeps changing the field still prevents the cluster from settling,
    /// unless the [cluster](Self::cluster) [ignores](TestClusterBuilder::ignore) the field as well.
    pub fn ignore(mut self, field: &str) -> Self {
        self.config.ignored.push(field.to_owned());
        self
    }

    /// Disables an oracle. All oracles are enabled [by default](Oracle).
    pub fn without(mut self, oracle: Oracle) -> Self {
        self.config.oracles.leave_out(oracle);
        self
    }

    /// Sets the upper bound on the processor time of the search, as the sum over all threads, so that other load on the
    /// machine does not affect the extent of the search. Default: ten seconds. See [`schedules`](Self::schedules).
    pub fn budget(mut self, time: Duration) -> Self {
        self.limits.time = time;
        self
    }

    /// Fails if a single fault remains untried when the [`budget`](Self::budget) or the number of
    /// [`schedules`](Self::schedules) is used up; for [`explore_spec`](super::explore_spec) also if a change or a
    /// sequence of changes remains untried. Without this option the report only contains a warning.
    pub fn require_all_singles(mut self) -> Self {
        self.requires_all_singles = true;
        self
    }

    /// Sets the maximum number of schedules, that is, runs that try a plan. Reference runs, and runs that confirm or
    /// minimise a failure, are not counted. Two explorations that try the same number of schedules try the same ones.
    /// Default: 2,000.
    pub fn schedules(mut self, runs: u64) -> Self {
        self.limits.schedules = runs;
        self
    }

    /// Executes the run of this replay string before the search. Use it to keep a fixed failure as a regression test.
    /// May be called several times.
    pub fn replay(mut self, replay: &str) -> Self {
        self.replays.push(replay.to_owned());
        self
    }

    /// Executes each replay `times` times and compares the runs byte by byte: requests, events, times, responses, the
    /// observations of each client, and the final state. The contents of Events are not compared.
    /// [`Report::nondeterminism`] returns the first difference of each run from the first one. Default: 1.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times.max(1);
        self.config.has_digests = times > 1;
        self
    }

    /// Allows controllers to read the machine's clocks. By default, `Instant::now()` and `SystemTime::now()` of the
    /// standard library, and all functions based on them, return virtual time in a run. This works on Linux, on the
    /// thread of the run, in code that is linked into the test. On other systems, and with this option, controllers
    /// read the machine's clocks; [`Report::notes`] lists controllers that write such times into objects.
    pub fn machine_clock(mut self) -> Self {
        self.config.has_machine_clock = true;
        self
    }

    /// Sets the number of concurrent runs. Results do not depend on it, because runs are evaluated in the order of
    /// their plans. Default: [`available_parallelism`](std::thread::available_parallelism). Controllers that share
    /// state through the process, such as a `static`, require 1.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Runs one part of the search: part `number` of `of`, counted from 1. The environment variable `EXPLORE_SHARD=2/8`
    /// has the same effect without changing the test.
    ///
    /// # Panics
    ///
    /// If `number` is 0 or greater than `of`.
    pub fn shard(mut self, number: u64, of: u64) -> Self {
        let shard = Shard::parse(&format!("{number}/{of}"));
        self.shard = shard.unwrap_or_else(|| panic!("the shard {number}/{of} does not exist"));
        self
    }

    /// Searches with uniformly random faults from this seed instead of the default order. A random search usually finds
    /// fewer failures; it is intended for comparisons.
    pub fn at_random(mut self, seed: u64) -> Self {
        self.at_random = Some(seed);
        self
    }

    /// Runs the exploration.
    ///
    /// # Panics
    ///
    /// If a run violates an oracle or a check; the message describes the smallest plan found that causes the violation.
    /// If the scenario fails without any fault. If a `sometimes` check never held. If single faults, or changes or
    /// sequences of [`explore_spec`](super::explore_spec), remain untried although they
    /// [are required](Self::require_all_singles). If a replay string cannot be parsed, or the reports of
    /// all shards cannot be read. If a run is stuck: after half a minute of real time in which the process is idle, or
    /// after five minutes.
    #[track_caller]
    pub fn run(self) -> Report {
        let report = self.report();
        assert!(report.is_success(), "{report}");
        report.print();
        report
    }

    /// Same as [`run`](Self::run), but returns a failure instead of panicking.
    ///
    /// # Panics
    ///
    /// If a replay string cannot be parsed, if the reports of all shards cannot be read, or if a run is stuck.
    #[track_caller]
    pub fn report(mut self) -> Report {
        self.config.work = self.world.work.clone();
        self.config.ignored.extend_from_slice(&self.config.work.ignored);
        self.replays.extend(std::env::var(REPLAY).ok());
        let is_replay = std::env::var_os(REPLAY).is_some();
        let name = std::thread::current().name().unwrap_or("explore").to_owned();
        let current = Arc::clone(&self.config.current);
        let mut activity = Activity::start();
        let progress = Progress::start();
        let shown = progress.clone();
        let (done, result) = mpsc::channel();
        let explore = move || {
            // The receiver no longer exists if the test has failed.
            let _ = done.send(self.explore(&name, is_replay, &progress));
        };
        let thread = std::thread::Builder::new().name("explore".to_owned()).spawn(explore);
        if let Err(err) = thread {
            panic!("cannot start a thread for the exploration: {err}");
        }
        loop {
            match result.recv_timeout(HEARTBEAT) {
                Ok(report) => {
                    shown.clear();
                    return report;
                }
                Err(RecvTimeoutError::Disconnected) => panic!("the exploration thread panicked"),
                Err(RecvTimeoutError::Timeout) => {
                    shown.show();
                    let idle = activity.idle();
                    let current = crate::lock::lock(&current).clone();
                    let stuck = current.into_values().find(|(since, _)| is_stuck(since.elapsed(), idle));
                    if let Some((since, plan)) = stuck {
                        panic!(
                            "a run has not ended after {:.0?} of real time: a task never yields, or blocks its \
                             thread\nto replay: {REPLAY}='{plan}'",
                            since.elapsed()
                        );
                    }
                }
            }
        }
    }

    /// Copies the combined results of all shards into the report. Returns the replay strings of the failures to
    /// reproduce.
    fn of_shards(&self, merged: Merged, report: &mut Report) -> Vec<String> {
        (report.coverage, report.never, report.notes) = (merged.coverage, merged.never, merged.notes);
        report.requires_all_singles = self.requires_all_singles;
        merged.failures
    }

    fn explore(mut self, name: &str, is_replay: bool, progress: &Progress) -> Report {
        let clock = WallClock::start();
        let world = self.world.clone().world(None);
        crate::seeded_hash::install();
        self.config.flight.is_part(&self.shard);
        let mut report = Report::new(name);
        report.shard = self.shard;
        let (mut wanted, mut is_replay) = (self.replays.clone(), is_replay);
        let mut merged_coverage = None;
        if let Some(directory) = std::env::var_os(MERGE).filter(|_| !is_replay) {
            wanted = self.of_shards(merged(directory.as_ref(), name), &mut report);
            if wanted.is_empty() {
                return report;
            }
            is_replay = true;
            merged_coverage = Some(report.coverage.clone());
        }
        report.note(self.config.flight.interrupted());
        let (reference, nondeterminism) = match reference(&self.config, &world) {
            Ok(found) => found,
            Err(finding) => return self.reported(report, vec![*finding], &world),
        };
        report.note(reference.outcome.notes.iter().cloned());
        let reference = Arc::new(reference);
        if let Some(violation) = is_in_vain(self.faults, &reference) {
            let finding = Finding::new(&reference, Outcome::default(), Plan::default(), violation);
            return report.failed(*finding, world.start_to_replay());
        }
        let mut tell = |coverage: &Coverage, _| progress.tell(|| coverage.line());
        let runs = Runs {
            config: &self.config,
            world: &world,
            reference,
            at_once: &|| self.threads,
            faultless: Mutex::default(),
        };
        let mut search = Search {
            runs: &runs,
            faults: self.faults,
            limits: self.limits,
            shard: self.shard,
            seed: self.shard.seed(self.at_random.unwrap_or_default()),
            progress: &mut tell,
            held: runs.reference.outcome.held.clone(),
            coverage: Coverage::default(),
            seen: BTreeSet::new(),
            nondeterminism,
            is_cut: false,
            known: Default::default(),
            asides: Asides::default(),
            kinds: Kinds::default(),
            failures: Failures::default(),
            coverage_at_failure: None,
        };
        let replayed = replays(&mut search, &wanted, self.times, &mut report.notes);
        let stop = replayed.and_then(|()| if is_replay { Ok(()) } else { self.search(&mut search) });
        let mut findings = std::mem::take(&mut search.failures).into_sorted();
        findings.extend(stop.err().and_then(Stop::failure).map(|it| *it));
        report.untried_kinds = search.untried_kinds();
        // Failures of shards are only replayed, so report the merged coverage.
        report.coverage = merged_coverage
            .or(search.coverage_at_failure)
            .unwrap_or(search.coverage);
        report.coverage.elapsed = clock.elapsed();
        report.nondeterminism = search.nondeterminism;
        report.note(search.asides.notes(&self.config));
        report.requires_all_singles = self.requires_all_singles && !is_replay;
        if !is_replay && findings.is_empty() {
            report.never = self.config.never(&search.held);
        }
        self.reported(report, findings, &world)
    }

    /// Adds findings to the report. Writes the report to files if there are any findings, or if it is the report of a
    /// shard.
    fn reported(&self, mut report: Report, findings: Vec<Finding>, world: &World) -> Report {
        let is_written = !findings.is_empty() || !self.shard.is_whole();
        for mut finding in findings {
            show(&self.config, world, &mut finding);
            report = report.failed(finding, world.start_to_replay());
        }
        match is_written {
            true => report.written(),
            false => report,
        }
    }

    /// Searches at random, through the changes of a spec, or through the faults of the reference.
    fn search(&self, search: &mut Search<'_>) -> Result<(), Stop> {
        match &self.config.spec {
            _ if self.at_random.is_some() => search.at_random(),
            Some(spec) => search.search_spec(spec),
            None => search.search(),
        }
    }
}

/// Returns a violation if the scenario sends no requests, or if crashes are enabled but none of its controllers can be
/// restarted.
fn is_in_vain(faults: Faults, reference: &Reference) -> Option<Violation> {
    let outcome = &reference.outcome;
    if outcome.messages == 0 {
        let what = "no client sent a request, so there is nothing to inject faults into: does the scenario start its \
                    controllers with the client that they receive?";
        return Some(Violation::new(EXPLORABLE, what.to_owned()));
    }
    if faults.has(Kind::Crash) && outcome.controllers.is_empty() && !outcome.fixed.is_empty() {
        let what = format!("{}; or exclude crashes with `faults`", outcome.notes.join("\n"));
        return Some(Violation::new(CRASHABLE, what));
    }
    None
}

fn condition<C: Condition>(
    name: &str,
    must_always: bool,
    check: impl Fn(&TestCluster) -> C + Send + Sync + 'static,
) -> Check {
    Check {
        name: name.to_owned(),
        oracle: None,
        must_always,
        look: Arc::new(move |cluster| check(cluster).outcome()),
    }
}
