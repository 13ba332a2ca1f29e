//! The exploration of a scenario: references, replays or a search, and the report.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fake_apiserver::{KubernetesVersion, PodScript, PodSelector, Worker, load, random_token};
use serde_json::{Value, json};

use super::files::Folder;
use super::leases::RECORD;
use super::merge::Shards;
use super::objects::groups;
use super::old_crds::as_v1;
use super::pace::Pace;
use super::progress::Lines;
use super::read::ScenarioError;
use super::reaper::Reaper;
use super::report::{Found, Report, Spent};
use super::runner::Runner;
use super::scenario::Scenario;
use super::usage::Usage;
use super::webhooks::Trust;
use crate::explore::parts::{
    Asides, Config, Failures, Flight, Kinds, Limits, Linger, Oracles, Plan, Progress, Reference, Runs, Search, Shard,
    Stop, Timing, WallClock, World, of_processes, process_time, real_reference, replays, time_of_day,
};
use crate::explore::{Coverage, Faults, Oracle};
use crate::lock::lock;
use crate::test_cluster::TestCluster;
use crate::work::Work;

/// Expected duration of a wait in a run without faults after all work has been done.
const SHORT_WAIT: Duration = Duration::from_millis(250);

/// Time after which a Pod starts, in real time. With the server's default, a run would mostly wait for Pods.
const POD_STARTS: Duration = Duration::from_millis(200);

/// Time after which a run fails if its cluster has not settled.
const SETTLE_BOUND: Duration = Duration::from_secs(60);

/// Interval at which a kept run checks whether it has been interrupted.
const LOOK_FOR_STOP: Duration = Duration::from_millis(50);

/// Time limit for all steps of a run.
const SCENARIO_BOUND: Duration = Duration::from_secs(10 * 60);

/// Options of one exploration, in addition to the scenario.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Replay strings of the runs to execute instead of a search.
    pub replays: Vec<String>,
    /// Keeps the replayed run alive until [`stop`](Self::stop) is set, and keeps the files of all runs.
    pub keep: bool,
    /// The part of the search to run, such as `2/8`.
    pub shard: Option<String>,
    /// JSON reports of all shards of a search, which are combined in place of a search. Their failures are replayed.
    pub merge: Vec<std::path::PathBuf>,
    /// Flag that ends the exploration. The report contains the failures found so far.
    pub stop: Arc<AtomicBool>,
    /// Path of the program `drydock`, which also runs as the reaper: it kills the controllers when this process ends.
    /// Default: the executable of this process.
    pub reaper: Option<std::path::PathBuf>,
    /// Prints the phases of the exploration to standard error.
    pub is_verbose: bool,
}

impl Scenario {
    /// Explores the scenario. Blocks this thread, which must not belong to a tokio runtime.
    ///
    /// # Errors
    ///
    /// Fails if an object of the cluster is refused, if a replay string or a shard cannot be parsed, if the reports to
    /// merge cannot be read or are incomplete, or if the machine lacks a resource, such as disk space.
    pub fn explore(self, options: &Options) -> Result<Report, ScenarioError> {
        let wrong = |what: String| ScenarioError(format!("{}: {what}", self.file));
        for replay in &options.replays {
            Plan::parse(replay).map_err(&wrong)?;
        }
        let shard = match &options.shard {
            None => Shard::WHOLE,
            Some(text) => Shard::parse(text).ok_or_else(|| {
                wrong(format!(
                    "the shard {text:?} is invalid: it must be NUMBER/TOTAL, such as 2/8, counted from 1"
                ))
            })?,
        };
        let shards = match options.merge.as_slice() {
            [] => None,
            paths => Some(Shards::read(paths).map_err(&wrong)?),
        };
        if let Some(shards) = shards.as_ref().filter(|it| it.replays().is_empty()) {
            let mut report = Report::new(&self.file);
            report.requires_all_singles = self.budget.all_singles;
            shards.clone().add_to(&mut report);
            return Ok(report);
        }
        let replays = shards
            .as_ref()
            .map_or(options.replays.as_slice(), Shards::replays)
            .to_vec();
        let io = |err: std::io::Error| wrong(format!("cannot prepare runs: {err}"));
        let tokens = self.controllers.iter().map(|_| random_token());
        let tokens = tokens.collect::<Result<Vec<String>, _>>().map_err(io)?;
        let objects = self.objects().map_err(&wrong)?;
        let trust = Trust::new(&self, objects.iter());
        let trust = trust.map_err(|err| wrong(format!("cannot generate a certificate: {err}")))?;
        let unserved = self.unserved_webhooks(&objects);
        let world = self.world(&tokens, &trust).map_err(&wrong)?;
        let program = match &options.reaper {
            Some(program) => program.clone(),
            None => std::env::current_exe().map_err(io)?,
        };
        let folder = Folder::new(options.keep).map_err(io)?;
        self.write_resolver(folder.path()).map_err(io)?;
        let runner = Arc::new(Runner {
            folder,
            reaper: Reaper::start(&program).map_err(io)?,
            usage: Arc::new(Usage::default()),
            tokens,
            trust,
            kept: Mutex::default(),
            scenario: self,
        });
        let exploration = Exploration {
            config: runner.config(options),
            runner,
            options,
            replays,
            shard,
        };
        let mut report = exploration.report(world);
        report.notes.extend(unserved);
        report.notes.extend(report.hints());
        if let Some(shards) = shards {
            shards.add_to(&mut report);
        }
        Ok(report)
    }

    /// Returns the initial state of all runs. Fails with a message for the report.
    fn world(&self, tokens: &[String], trust: &Trust) -> Result<World, String> {
        let cluster = &self.cluster;
        let workers = match &cluster.workers {
            None => Worker::ALL.to_vec(),
            Some(words) if words.is_empty() => Vec::new(),
            Some(words) => Worker::parse_list(&words.join(",")).map_err(|err| err.to_string())?,
        };
        let workers_start_pods = workers.contains(&Worker::Kubelet);
        let mut builder = TestCluster::builder().workers(workers);
        if cluster.rbac {
            builder = builder.rbac();
        }
        let version: Option<KubernetesVersion> = match &cluster.version {
            Some(version) => Some(version.parse().map_err(|err| format!("{err}"))?),
            None => None,
        };
        let mut retired = Ok(());
        builder = builder.server(|mut server| {
            if let Some(version) = version {
                server = server.kubernetes_version(version);
            }
            for (controller, token) in self.controllers.iter().zip(tokens) {
                if let Some(user) = &controller.user {
                    server = server.token(token.clone(), user.clone(), groups(user));
                } else if cluster.rbac {
                    server = server.token(token.clone(), "kubernetes-admin", ["system:masters".to_owned()]);
                }
            }
            let before = server.clone();
            match server.retired_apis(cluster.retired_apis.iter().map(String::as_str)) {
                Ok(server) => server.nodes(cluster.nodes),
                Err(err) => {
                    retired = Err(err);
                    before
                }
            }
        });
        retired?;
        if !cluster.storage_class.is_empty() {
            builder = builder.manifest(json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "drydock.example.com",
                "metadata": {
                    "name": cluster.storage_class,
                    "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                },
                "allowVolumeExpansion": true,
            }));
        }
        let paths = cluster.crds.iter().chain(&cluster.manifests);
        let manifests = load::read(paths.map(|it| self.path(it))).map_err(|err| err.to_string())?;
        for manifest in manifests {
            let mut object = as_v1(manifest.object);
            trust.add_to(&mut object);
            builder = builder.manifest(object);
        }
        let starts = PodScript::default().starts_after(POD_STARTS);
        if workers_start_pods {
            builder = builder.pod_script(PodSelector::all(), starts);
        }
        for (pods, script) in self.pod_scripts()? {
            builder = builder.pod_script(pods, script);
        }
        let mut builder = builder.quiet(self.quiet.0).patience(SETTLE_BOUND, SETTLE_BOUND);
        builder.bounds.repeats = Some(self.quiet.0 * 2);
        builder.bounds.is_real = true;
        builder.work = self.work();
        // If an object is refused, this panics with a message.
        crate::panics::quietly(|| builder.world(None))
    }

    /// Returns the objects in the files and steps of the scenario.
    fn objects(&self) -> Result<Vec<Value>, String> {
        let cluster = &self.cluster;
        let steps = || self.steps.iter().map(|it| &it.value);
        let applied = steps().filter_map(|it| it.apply.as_ref()).flat_map(|it| it.all());
        let paths = cluster.crds.iter().chain(&cluster.manifests).map(|it| self.path(it));
        let paths = paths.chain(applied.map(|it| self.path(it)));
        let manifests = load::read(paths).map_err(|err| err.to_string())?;
        let objects = manifests.into_iter().map(|it| as_v1(it.object));
        let own = steps().filter_map(|it| it.object.clone());
        Ok(objects.chain(own).collect())
    }

    fn work(&self) -> Work {
        // Leases do not count as work, and neither do the annotations that old clients use instead.
        let record = format!("metadata.annotations.{RECORD}");
        Work {
            ignored: self.ignore.iter().cloned().chain([record]).collect(),
            sorts_names: true,
            ignores_rollouts: true,
            ..Work::default()
        }
    }

    fn faults(&self) -> Faults {
        let chosen = self.faults.iter().filter_map(|it| Faults::of_name(it));
        chosen
            .reduce(|one, other| one | other)
            .unwrap_or(Faults::all() | of_processes())
    }
}

impl Runner {
    fn config(self: &Arc<Self>, options: &Options) -> Config {
        let scenario = &self.scenario;
        let mut oracles = Oracles::default();
        for oracle in scenario.without.iter().filter_map(|it| Oracle::of_name(it)) {
            oracles.leave_out(oracle);
        }
        let runner = Arc::clone(self);
        let checks = scenario.evaluated_checks(self.folder.path());
        Config {
            scenario: Box::new(move |cluster, _| {
                let runner = Arc::clone(&runner);
                Box::pin(async move { runner.run(cluster).await })
            }),
            has_machine_clock: true,
            checks: checks.all_the_time.into(),
            at_last: checks.at_last,
            inquiries: checks.inquiries.into(),
            timing: Timing::real(SCENARIO_BOUND, scenario.within.0 / 2),
            stop: Arc::clone(&options.stop),
            is_over: AtomicBool::default(),
            is_patient: AtomicBool::default(),
            linger: None,
            within: scenario.within.0,
            ignored: scenario.work().ignored,
            work: scenario.work(),
            oracles,
            spec: None,
            flight: Flight::default(),
            began: time_of_day(),
            has_digests: false,
            current: Arc::default(),
        }
    }

    /// Keeps a run alive until `stop` is set, and prints how to access it.
    fn linger(self: &Arc<Self>, stop: &Arc<AtomicBool>) -> Linger {
        let (runner, stop) = (Arc::clone(self), Arc::clone(stop));
        Box::new(move |_| {
            for line in lock(&runner.kept).iter() {
                say(line);
            }
            say("the run is kept until it is interrupted");
            let stop = Arc::clone(&stop);
            Box::pin(async move {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    tokio::time::sleep(LOOK_FOR_STOP).await;
                }
            })
        })
    }
}

/// A prepared exploration.
struct Exploration<'a> {
    config: Config,
    runner: Arc<Runner>,
    options: &'a Options,
    /// Replay strings of the plans that are run in place of a search.
    replays: Vec<String>,
    shard: Shard,
}

impl Exploration<'_> {
    fn report(mut self, mut world: World) -> Report {
        let clock = WallClock::start();
        let scenario = &self.runner.scenario;
        let mut report = self.new_report();
        self.say(&format!("{} runs without faults", scenario.references.max(2)));
        let made = real_reference(&self.config, &world, scenario.references, scenario.quiet.0);
        let (reference, quiet) = match made {
            Ok(made) => made,
            Err(_) if self.is_stopped() => return report.interrupted(),
            Err(finding) => {
                report.found.push(Found::of(*finding));
                report.spent = self.spent(clock);
                return report;
            }
        };
        world.quiet(quiet);
        let took = self.expected(&reference, quiet);
        let pace = self.pace(took);
        self.say(&format!(
            "a run takes about {took:.1?}; it has settled after {quiet:.1?} without activity; {} concurrent runs",
            pace.at_once()
        ));
        report.notes.extend(reference.outcome.notes.iter().cloned());
        if self.options.keep {
            self.config.linger = Some(self.runner.linger(&self.options.stop));
        }
        let runs = Runs {
            config: &self.config,
            world: &world,
            reference: Arc::new(reference),
            at_once: &|| pace.at_once(),
            faultless: Mutex::default(),
        };
        let (progress, searched) = (Progress::start(), WallClock::start());
        let mut lines = Lines::new(self.runner.scenario.budget.time.0);
        let mut tell = |coverage: &Coverage, failures: usize| {
            progress.tell(|| lines.line(coverage, failures, searched.elapsed()));
            progress.show();
            if !progress.is_shown()
                && let Some(line) = lines.due(coverage, failures, searched.elapsed())
            {
                self.say(&line);
            }
        };
        let mut search = Search {
            runs: &runs,
            faults: self.runner.scenario.faults(),
            limits: self.limits(searched),
            shard: self.shard,
            seed: self.shard.seed(0),
            progress: &mut tell,
            coverage: Coverage::default(),
            seen: BTreeSet::new(),
            held: runs.reference.outcome.held.clone(),
            nondeterminism: Vec::new(),
            is_cut: false,
            known: Default::default(),
            asides: Asides::default(),
            kinds: Kinds::default(),
            failures: Failures::at_most(self.runner.scenario.budget.failures.max(1)),
            coverage_at_failure: None,
        };
        let stop = match self.replays.as_slice() {
            [] => search.search(),
            texts => replays(&mut search, texts, 1, &mut report.notes),
        };
        self.add_failures(&mut search, stop, &mut report);
        report.coverage.elapsed = searched.elapsed();
        progress.clear();
        report.spent = self.spent(clock);
        report
    }

    /// Returns an empty report.
    fn new_report(&self) -> Report {
        let scenario = &self.runner.scenario;
        let mut report = Report::new(&scenario.file);
        report.requires_all_singles = scenario.budget.all_singles;
        report.shard = (!self.shard.is_whole()).then(|| self.shard.to_string());
        report
    }

    /// Adds the failures and all other findings of a search or of replays, given the reason of its end.
    fn add_failures(&self, search: &mut Search<'_>, end: Result<(), Stop>, report: &mut Report) {
        let last = end.err().and_then(Stop::failure);
        let found = std::mem::take(&mut search.failures).into_sorted().into_iter();
        report.found = found.chain(last.map(|it| *it)).map(Found::of).collect();
        report.is_interrupted = self.is_stopped() && !self.options.keep;
        report.is_replay = !self.replays.is_empty();
        self.add_findings(search, report);
    }

    fn limits(&self, searched: WallClock) -> Limits {
        let budget = &self.runner.scenario.budget;
        Limits {
            time: budget.time.0,
            clock: Some(searched),
            schedules: budget.plans,
        }
    }

    /// Adds the results of a search except for its failures.
    fn add_findings(&self, search: &Search<'_>, report: &mut Report) {
        report.untried_kinds = search.untried_kinds();
        let is_whole = self.replays.is_empty() && !self.is_stopped();
        if is_whole && report.found.is_empty() {
            report.never = self.config.never(&search.held);
        }
        report.unsure = search
            .nondeterminism
            .iter()
            .map(|it| (it.plan.clone(), it.what.clone()))
            .collect();
        report.notes.extend(search.asides.notes(&self.config));
        report.unconfirmed = search.asides.unconfirmed.len();
        report.coverage = search.coverage.clone();
    }

    fn is_stopped(&self) -> bool {
        self.options.stop.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns the expected duration of a run after the references. Most of its waits are shorter than the waits of the
    /// references.
    fn expected(&self, reference: &Reference, quiet: Duration) -> Duration {
        let waits = u32::try_from(reference.milestones.len()).unwrap_or(u32::MAX);
        let idle = self.runner.scenario.quiet.0.saturating_mul(waits.saturating_add(1));
        reference.outcome.took.saturating_sub(idle) + SHORT_WAIT * waits + quiet
    }

    fn pace(&self, took: Duration) -> Pace {
        let scenario = &self.runner.scenario;
        let references = u32::try_from(scenario.references.max(2)).unwrap_or(u32::MAX);
        Pace::new(Arc::clone(&self.runner.usage), scenario.parallel, references, took)
    }

    fn spent(&self, clock: WallClock) -> Spent {
        let used = self.runner.usage.used();
        Spent {
            runs: used.runs,
            elapsed: clock.elapsed(),
            own: process_time(),
            controllers: used.processor,
            memory_bytes: used.memory_bytes,
        }
    }

    fn say(&self, line: &str) {
        if self.options.is_verbose {
            say(line);
        }
    }
}

#[expect(clippy::print_stderr, reason = "the command shows its progress")]
fn say(line: &str) {
    eprintln!("drydock: {line}");
}
