//! `Explore`: the scenario, the options and the bounds of an exploration.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::baseline::reference;
use super::flight::Flight;
use super::in_order::Runs;
use super::kinds::Faults;
use super::plan::{Action, Plan};
use super::progress::{Activity, Progress, WallClock, is_stuck, time_of_day};
use super::replays::replays;
use super::report::{Coverage, Failure, Report};
use super::run::{Config, Outcome, Reference};
use super::search::{Asides, Limits, Search, Stop};
use super::shards::{MERGE, Merged, Shard, merged};
use super::spec::Spec;
use super::{Check, Oracle, Violation};
use crate::eventually::Condition;
use crate::test_cluster::{TestCluster, TestClusterBuilder};
use crate::work::Work;

/// The environment variable that has a replay string.
const REPLAY: &str = "EXPLORE_REPLAY";

/// Interval at which the test thread looks after its runs.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// An exploration to be configured, from [`explore`].
#[derive(Debug)]
#[must_use = "nothing is explored until `run` is called"]
pub struct Explore {
    config: Config,
    world: TestClusterBuilder,
    faults: Faults,
    limits: Limits,
    /// Replay strings of the runs that are made instead of a search.
    replays: Vec<String>,
    /// Number of times each run is made.
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
    Explore {
        config: Config {
            scenario: Box::new(move |cluster| {
                let scenario = Arc::clone(&scenario);
                Box::pin(async move { scenario(cluster).await })
            }),
            checks: Arc::new([]),
            at_last: Vec::new(),
            within: Duration::from_secs(900),
            ignored: Vec::new(),
            work: Work::default(),
            skipped: BTreeSet::new(),
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
    /// Explores changes of an object's spec.
    pub(crate) fn of_spec(mut self, spec: Arc<Spec>) -> Self {
        self.config.spec = Some(spec);
        self
    }

    /// The cluster every run begins with. It is made once; beginning a run with it costs the same for ten objects and
    /// for ten thousand. Default: [`TestCluster::start`].
    pub fn cluster(mut self, cluster: TestClusterBuilder) -> Self {
        self.world = cluster;
        self
    }

    /// The kinds of faults, joined by `|`: [`crashes`](super::crashes), [`errors`](super::errors),
    /// [`stale_watches`](super::stale_watches), [`delays`](super::delays), [`pauses`](super::pauses),
    /// [`clock_skew`](super::clock_skew) and [`variants`](super::variants). Default: all of them.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Adds a check that must hold after every write and as time passes, in every run. It is evaluated when a write
    /// request is done, whether a client, the test or a worker of the server sent it; a write made through
    /// [`TestCluster::server`] without a request is seen with the next request. As time passes it is evaluated each
    /// second at first, then each time a hundredth of the time so far has passed. It may assert; see [`Condition`].
    pub fn always<C: Condition>(self, name: &str, check: impl Fn(&TestCluster) -> C + Send + Sync + 'static) -> Self {
        self.check(name, true, check)
    }

    /// Must hold after some write of some run: that what is tested happens at all.
    pub fn sometimes<C: Condition>(
        self,
        name: &str,
        check: impl Fn(&TestCluster) -> C + Send + Sync + 'static,
    ) -> Self {
        self.check(name, false, check)
    }

    /// Must hold in the end of every run, when no fault is left.
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

    /// Sets the virtual time from the last fault, and from the end of the scenario, within which the end state must be
    /// right. What is right up to an hour later is slow: a note of the report says so, and it is no failure. Default 15
    /// minutes, which three reconciles of a controller fit into that requeues after 300 s.
    pub fn within(mut self, time: Duration) -> Self {
        self.config.within = time;
        self
    }

    /// Ignores a field in the end state, for every resource: `status.attempts`, or `status.conditions.*.message`. A
    /// controller that goes on changing it does not settle, unless the [cluster](Self::cluster)
    /// [ignores](TestClusterBuilder::ignore) it.
    pub fn ignore(mut self, field: &str) -> Self {
        self.config.ignored.push(field.to_owned());
        self
    }

    /// Takes out an oracle. The others are [always](Oracle) held.
    pub fn without(mut self, oracle: Oracle) -> Self {
        self.config.skipped.insert(oracle);
        self
    }

    /// Processor time to explore for, of all threads together, so that a busy machine does not change how far the
    /// search comes. Default ten seconds. See [`schedules`](Self::schedules).
    pub fn budget(mut self, time: Duration) -> Self {
        self.limits.time = time;
        self
    }

    /// Fails where not every single fault was tried within [`budget`](Self::budget) and
    /// [`schedules`](Self::schedules). Without it the report warns.
    pub fn require_all_singles(mut self) -> Self {
        self.requires_all_singles = true;
        self
    }

    /// Runs to make at the most. Two explorations that make the same number of runs make the same runs. Default 2,000.
    pub fn schedules(mut self, runs: u64) -> Self {
        self.limits.schedules = runs;
        self
    }

    /// Makes this run first: a failure that was found once and is to stay fixed. Several may be given.
    pub fn replay(mut self, replay: &str) -> Self {
        self.replays.push(replay.to_owned());
        self
    }

    /// Makes each replay so many times and compares the runs to the byte: requests, events, times, what each client
    /// saw, answers, and the state they leave. [`Report::nondeterminism`] says which differ from the first. Default 1.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times.max(1);
        self.config.has_digests = times > 1;
        self
    }

    /// Sets how many runs are made at once. Results do not depend on it: they are evaluated in the order of plans.
    /// Default: [`available_parallelism`](std::thread::available_parallelism). Controllers that share state through the
    /// process, such as a `static`, need 1.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Makes one part of the search: the `number`-th of so many, counted from 1. The environment variable
    /// `EXPLORE_SHARD=2/8` says the same without a change of the test.
    ///
    /// # Panics
    ///
    /// If the part does not exist.
    pub fn shard(mut self, number: u64, of: u64) -> Self {
        let shard = Shard::parse(&format!("{number}/{of}"));
        self.shard = shard.unwrap_or_else(|| panic!("there is no part {number} of {of}"));
        self
    }

    /// Searches with uniformly random faults from this seed rather than in order. It finds less: it is there to be
    /// compared with.
    pub fn at_random(mut self, seed: u64) -> Self {
        self.at_random = Some(seed);
        self
    }

    /// Explores.
    ///
    /// # Panics
    ///
    /// If a run violates an oracle or a check, with the smallest plan that does, in words; if the scenario fails
    /// without any fault; if a `sometimes` never held; if single faults are left over that
    /// [must be tried](Self::require_all_singles); and if a run is stuck: after half a minute of real time in which the
    /// process does nothing, or after five minutes.
    #[track_caller]
    pub fn run(self) -> Report {
        let report = self.report();
        assert!(report.is_success(), "{report}");
        report.print();
        report
    }

    /// Like [`run`](Self::run), but returns a failure instead of panicking.
    ///
    /// # Panics
    ///
    /// If the environment variable `EXPLORE_REPLAY` cannot be read, or if a run is stuck.
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
            // The receiver is gone if the test has failed.
            let _ = done.send(self.explore(&name, is_replay, &progress));
        };
        let thread = std::thread::Builder::new().name("explore".to_owned()).spawn(explore);
        if let Err(err) = thread {
            panic!("an exploration needs a thread: {err}");
        }
        loop {
            match result.recv_timeout(HEARTBEAT) {
                Ok(report) => {
                    shown.clear();
                    return report;
                }
                Err(RecvTimeoutError::Disconnected) => panic!("the exploration itself panicked"),
                Err(RecvTimeoutError::Timeout) => {
                    shown.show();
                    let idle = activity.idle();
                    let current = crate::test_cluster::lock(&current).clone();
                    let stuck = current.into_values().find(|(since, _)| is_stuck(since.elapsed(), idle));
                    if let Some((since, plan)) = stuck {
                        panic!(
                            "a run has not ended after {:.0?} of real time: a task never waits, or blocks its \
                             thread\nto replay: {REPLAY}='{plan}'",
                            since.elapsed()
                        );
                    }
                }
            }
        }
    }

    /// The `sometimes` that are not among those that held.
    fn never(&self, held: &BTreeSet<usize>) -> Vec<String> {
        let never = |(index, check): &(usize, &Check)| !check.must_always && !held.contains(index);
        let checks = self.config.checks.iter().enumerate().filter(never);
        checks.map(|(_, it)| it.name.clone()).collect()
    }

    /// Takes over what the reports of all shards say; returns the failure to be run again.
    fn of_shards(&self, merged: Merged, report: &mut Report) -> Option<String> {
        (report.coverage, report.never, report.notes) = (merged.coverage, merged.never, merged.notes);
        report.requires_all_singles = self.requires_all_singles;
        merged.failure
    }

    fn explore(self, name: &str, is_replay: bool, progress: &Progress) -> Report {
        let clock = WallClock::start();
        let world = self.world.clone().world(None);
        super::seed_hashes();
        let mut report = Report::new(name);
        report.shard = self.shard;
        let (mut wanted, mut is_replay) = (self.replays.clone(), is_replay);
        if let Some(directory) = std::env::var_os(MERGE).filter(|_| !is_replay) {
            match self.of_shards(merged(directory.as_ref(), name), &mut report) {
                Some(failure) => (wanted, is_replay) = (vec![failure], true),
                None => return report,
            }
        }
        report.notes = self.config.flight.interrupted();
        let (reference, nondeterminism) = match reference(&self.config, &world) {
            Ok(found) => found,
            Err(failure) => return report.failed(*failure, &world).written(),
        };
        report.notes.extend(reference.outcome.notes.iter().cloned());
        if let Some(violation) = is_in_vain(self.faults, &reference) {
            let outcome = Outcome::default();
            return report.failed(Failure::new(&reference, outcome, Plan::default(), violation), &world);
        }
        let mut tell = |coverage: &Coverage| progress.tell(coverage);
        let runs = Runs {
            config: &self.config,
            world: &world,
            reference: Arc::new(reference),
            threads: self.threads,
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
        };
        let stop = match replays(&mut search, &wanted, self.times, &mut report.notes) {
            Ok(()) if is_replay => Ok(()),
            Ok(()) if self.at_random.is_some() => search.at_random(),
            Ok(()) => match &self.config.spec {
                Some(spec) => search.search_spec(spec),
                None => search.search(),
            },
            Err(stop) => Err(stop),
        };
        let failure = match stop {
            Ok(()) | Err(Stop::Spent) => None,
            Err(Stop::Failed(failure)) => Some(failure),
        };
        report.coverage = search.coverage;
        report.coverage.elapsed = clock.elapsed();
        report.nondeterminism = search.nondeterminism;
        report.notes.extend(search.asides.notes(&self.config));
        report.requires_all_singles = self.requires_all_singles && !is_replay;
        if !is_replay && failure.is_none() {
            report.never = self.never(&search.held);
        }
        match failure {
            Some(failure) => report.failed(*failure, &world).written(),
            // The reports of all shards are looked at together.
            None if !self.shard.is_whole() => report.written(),
            None => report,
        }
    }
}

/// Returns the reason why an exploration cannot try anything of what it is asked for.
fn is_in_vain(faults: Faults, reference: &Reference) -> Option<Violation> {
    let outcome = &reference.outcome;
    if outcome.messages == 0 {
        let what = "no client sent a request, so that nothing can go wrong: does the scenario start its controllers, \
                    with the client it is given?";
        return Some(Violation::new("something to explore", what.to_owned()));
    }
    if faults.has(Action::RestartAtEnd) && outcome.controllers.is_empty() && !outcome.fixed.is_empty() {
        let what = format!("{}; or leave crashes out by `faults`", outcome.notes.join("\n"));
        return Some(Violation::new("something to crash", what));
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
        must_always,
        look: Arc::new(move |cluster| check(cluster).outcome()),
    }
}
