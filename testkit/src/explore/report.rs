//! `Report`: what an exploration found, and how far it came.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use fake_apiserver::Entry;

use super::Violation;
use super::cluster::World;
use super::plan::{Plan, Point};
use super::run::{Outcome, Reference};
use super::shards::Shard;
use super::timeline::{Timeline, rows};
use super::trace::{Step, What};
use super::{html, timeline};
use crate::test_cluster::{TEST_CLIENT, TestCluster};

/// The findings of an exploration. It prints as the message of a failed test.
#[derive(Debug)]
pub struct Report {
    name: String,
    pub(crate) coverage: Coverage,
    pub(crate) nondeterminism: Vec<Nondeterminism>,
    /// Places where the scenario does less than it seems to.
    pub(crate) notes: Vec<String>,
    /// The `sometimes` that never held.
    pub(crate) never: Vec<String>,
    pub(crate) requires_all_singles: bool,
    /// The part of the search that it covers.
    pub(crate) shard: Shard,
    failure: Option<Failure>,
    files: Vec<PathBuf>,
}

/// Coverage of an exploration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Runs, without the reference's.
    pub schedules: u64,
    /// Messages of the reference run at which something could go wrong; and those of them that are writes.
    pub points: u64,
    /// See `points`.
    pub write_points: u64,
    /// Changes of one field of the spec, where that is explored: tried alone, of all.
    pub changes: (u64, u64),
    /// Sequences of changes that were tried.
    pub sequences: u64,
    /// Single faults: tried, of all.
    pub singles: (u64, u64),
    /// Pairs of faults of different kinds, and of crashes: tried, of all.
    pub pairs: (u64, u64),
    /// Delivery orders tried.
    pub orders: u64,
    /// Random schedules tried.
    pub swarms: u64,
    /// Different combinations of client, object, lag of the client's view, and outcome that were met.
    pub states: u64,
    /// Requests and events of all runs.
    pub messages: u64,
    /// Returns `true` if all single faults, pairs and delivery orders were tried. Random schedules have no end, and
    /// replays are no search.
    pub is_whole: bool,
    /// Real time.
    pub elapsed: Duration,
    /// Processor time of the runs, which is what [`Explore::budget`](super::Explore::budget) bounds.
    pub processor_time: Duration,
}

/// A run that violates something.
#[derive(Debug)]
pub struct Failure {
    pub(crate) violation: Violation,
    pub(crate) plan: Plan,
    pub(crate) timeline: Timeline,
    /// The first step of the test that began while something went wrong, in words.
    went_on: Option<String>,
    /// The names of what requests create, by their points.
    names: BTreeMap<Point, String>,
}

/// Two runs of the same plan that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nondeterminism {
    pub(crate) plan: String,
    pub(crate) what: String,
}

impl Nondeterminism {
    pub(crate) fn new(plan: &Plan, what: &str) -> Self {
        Self {
            plan: plan.to_string(),
            what: what.to_owned(),
        }
    }

    /// The first difference of two runs.
    pub(crate) fn between(plan: &Plan, one: &Outcome, other: &Outcome) -> Option<Self> {
        let mut steps = one.trace.iter().zip(&other.trace);
        let difference = steps.find(|(one, other)| one.signature() != other.signature());
        let what = match difference {
            Some((one, other)) => format!("{} in one run, {} in the other", one.signature(), other.signature()),
            None if one.trace.len() != other.trace.len() => "one run continues after the other has ended".to_owned(),
            None => return None,
        };
        Some(Self::new(plan, &what))
    }
}

impl Failure {
    pub(crate) fn new(reference: &Reference, outcome: Outcome, plan: Plan, violation: Violation) -> Self {
        let timeline = Timeline {
            rows: rows(&reference.outcome, &outcome, &plan),
        };
        let created = |step: &Step| match &step.what {
            What::Request(request) => Some((step.point.clone(), request.creates.clone()?)),
            What::Event { .. } | What::Call { .. } | What::Note(_) => None,
        };
        let names = reference.outcome.trace.iter().chain(&outcome.trace);
        Self {
            violation,
            plan,
            timeline,
            names: names.filter_map(created).collect(),
            went_on: outcome.went_on.clone(),
        }
    }

    /// Returns the violated oracle: its name, or `always`, `eventually`.
    pub fn oracle(&self) -> &str {
        self.violation.oracle
    }

    /// Describes the failure in words.
    pub fn what(&self) -> &str {
        &self.violation.what
    }

    /// Names the line of the first step of the test that began before a fault was over, if there is one.
    pub fn went_on(&self) -> Option<&str> {
        self.went_on.as_deref()
    }

    /// The faults of the smallest run that fails, in words.
    pub fn plan(&self) -> Vec<String> {
        self.plan.words(&self.names)
    }

    /// Returns the replay string: the value of `EXPLORE_REPLAY`, and the argument of
    /// [`Explore::replay`](super::Explore::replay).
    pub fn replay(&self) -> String {
        self.plan.to_string()
    }
}

impl Report {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            coverage: Coverage::default(),
            nondeterminism: Vec::new(),
            never: Vec::new(),
            requires_all_singles: false,
            shard: Shard::WHOLE,
            notes: Vec::new(),
            failure: None,
            files: Vec::new(),
        }
    }

    pub(crate) fn failed(mut self, mut failure: Failure, world: &World) -> Self {
        failure.plan.start = failure.plan.start.or(world.start_to_replay());
        self.failure = Some(failure);
        self
    }

    /// Returns `true` if no failure was found.
    pub fn is_success(&self) -> bool {
        // Another shard may have met it.
        let is_never = self.shard.is_whole() && !self.never.is_empty();
        self.failure.is_none() && !is_never && !(self.requires_all_singles && self.lacks_singles())
    }

    /// Returns whether single faults are left over.
    fn lacks_singles(&self) -> bool {
        self.coverage.singles.0 < self.coverage.singles.1
    }

    /// Prints how far a search came that found nothing, and what to do if that is not far.
    #[expect(
        clippy::print_stderr,
        reason = "a test that tries less than it seems must be seen; the test runner captures it"
    )]
    pub(crate) fn print(&self) {
        eprintln!("{}: {self}", self.name);
    }

    /// Returns the failure, if there is one.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Returns the coverage reached.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Runs of the same plan that differed, in words: something in the test is not a function of its seed, such as a
    /// real clock or the order of a `HashMap`. These are no failures of the controller.
    pub fn nondeterminism(&self) -> Vec<String> {
        self.nondeterminism.iter().map(|it| it.what.clone()).collect()
    }

    /// Lists places where the scenario does less than it seems to: controllers that cannot be crashed because they were
    /// started by [`TestCluster::run`], and injected faults that struck nothing.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The same as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        let coverage = &self.coverage;
        serde_json::json!({
            "test": self.name,
            "shard": self.shard.to_string(),
            "failure": self.failure.as_ref().map(|it| serde_json::json!({
                "oracle": it.violation.oracle,
                "what": it.violation.what,
                "plan": it.plan(),
                "wentOn": it.went_on,
                "replay": it.replay(),
                "timeline": it.timeline.to_json(),
            })),
            "never": self.never,
            "notes": self.notes,
            "nondeterminism": self.nondeterminism(),
            "coverage": {
                "schedules": coverage.schedules,
                "points": coverage.points,
                "writePoints": coverage.write_points,
                "changes": [coverage.changes.0, coverage.changes.1],
                "sequences": coverage.sequences,
                "singles": [coverage.singles.0, coverage.singles.1],
                "pairs": [coverage.pairs.0, coverage.pairs.1],
                "orders": coverage.orders,
                "swarms": coverage.swarms,
                "states": coverage.states,
                "messages": coverage.messages,
                "isWhole": coverage.is_whole,
                "seconds": coverage.elapsed.as_secs_f64(),
                "processorSeconds": coverage.processor_time.as_secs_f64(),
            },
        })
    }

    /// The same as one page of HTML, which needs nothing else.
    pub fn to_html(&self) -> String {
        html::page(self)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Writes the page and the JSON to `target/explore`. If that cannot be done, the text alone must do.
    pub(crate) fn written(mut self) -> Self {
        let Some(directory) = directory() else { return self };
        let name = self.shard.file(&self.name);
        for (extension, text) in [("html", self.to_html()), ("json", format!("{:#}\n", self.to_json()))] {
            let path = directory.join(format!("{name}.{extension}"));
            if std::fs::create_dir_all(&directory).is_ok() && std::fs::write(&path, text).is_ok() {
                self.files.push(path);
            }
        }
        self
    }
}

/// The name of files about a test: `crate-module-test`.
pub(crate) fn file_name(test: &str) -> String {
    let program = std::env::current_exe().ok();
    let program = program
        .as_ref()
        .and_then(|it| it.file_stem()?.to_str())
        .unwrap_or("test");
    // Cargo adds a hash.
    let program = program.rsplit_once('-').map_or(program, |(name, _)| name);
    format!("{program}-{test}").replace("::", "-").replace(['/', ' '], "-")
}

/// The environment variable with the directory that reports are written to.
const REPORTS: &str = "EXPLORE_REPORTS";

/// `target/explore`, where the test that runs is in `target/debug/deps`, unless the environment names another one.
pub(crate) fn directory() -> Option<PathBuf> {
    if let Some(directory) = std::env::var_os(REPORTS) {
        return Some(directory.into());
    }
    let test = std::env::current_exe().ok()?;
    let deps = test.parent().filter(|it| it.ends_with("deps"))?;
    Some(deps.parent()?.parent()?.join("explore"))
}

impl Coverage {
    /// In one line.
    pub(crate) fn line(&self) -> String {
        let Self { singles, pairs, .. } = self;
        let mut line = String::new();
        if self.changes.1 > 0 {
            let (tried, all) = self.changes;
            let sequences = counted(self.sequences);
            line = format!(
                "{} of {} changes, {sequences} sequences, ",
                counted(tried),
                counted(all)
            );
        }
        line.push_str(&format!(
            "{} of {} single faults",
            counted(singles.0),
            counted(singles.1)
        ));
        if pairs.1 > 0 {
            line.push_str(&format!(", {} of {} pairs", counted(pairs.0), counted(pairs.1)));
        }
        for (count, what) in [(self.orders, "orderings"), (self.swarms, "random plans")] {
            if count > 0 {
                line.push_str(&format!(", {} {what}", counted(count)));
            }
        }
        line
    }
}

/// `12,345`
fn counted(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<String> = groups.map(|it| String::from_utf8_lossy(it).into_owned()).collect();
    groups.join(",")
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match (self.is_whole, self.singles.1) {
            (true, _) => "exhaustive: single faults, pairs, orderings",
            // Replays alone.
            (false, 0) => "not searched",
            (false, _) => "truncated",
        };
        write!(
            f,
            "{}, {:.1?} ({} schedules; {end}; {} points, {} of them writes; {} states)",
            self.line(),
            self.elapsed,
            counted(self.schedules),
            counted(self.points),
            counted(self.write_points),
            counted(self.states)
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            Some(failure) => {
                if failure.plan.is_empty() {
                    writeln!(f, "the scenario fails without any fault:")?;
                } else {
                    writeln!(f, "the scenario fails with:")?;
                }
                for line in failure.plan() {
                    writeln!(f, "  {line}")?;
                }
                writeln!(f, "\nviolated: {}\n", failure.violation)?;
                if let Some(went_on) = &failure.went_on {
                    writeln!(f, "note: {went_on}\n")?;
                }
                writeln!(f, "{}", failure.timeline)?;
                writeln!(f, "to replay: EXPLORE_REPLAY='{}'", failure.plan)?;
            }
            None if self.never.is_empty() => {}
            None => writeln!(f, "`sometimes` never held: {}", self.never.join(", "))?,
        }
        write!(f, "explored: {}", self.coverage)?;
        if self.failure.is_none() && self.lacks_singles() {
            let word = if self.requires_all_singles { "error" } else { "warning" };
            // Most of a run is spent in dependencies, whose assertions tell how they are usually built.
            let faster = match cfg!(debug_assertions) {
                true => {
                    ", or build dependencies with `[profile.dev.package.\"*\"] opt-level = 2` in the workspace's \
                     Cargo.toml: that makes several times as many runs"
                }
                false => "",
            };
            write!(
                f,
                "\n{word}: {} single faults were not tried: raise `budget` (CPU time) or `schedules`, choose fewer \
                 `faults`{faster}",
                counted(self.coverage.singles.1 - self.coverage.singles.0)
            )?;
        }
        for it in self.nondeterminism.iter().take(3) {
            write!(
                f,
                "\nuncontrolled nondeterminism, in two runs of the same plan '{}': {}",
                it.plan, it.what
            )?;
        }
        for note in &self.notes {
            write!(f, "\nnote: {note}")?;
        }
        for path in &self.files {
            write!(f, "\nsee {}", path.display())?;
        }
        Ok(())
    }
}

/// Lists the actions of the test itself.
pub(crate) fn doings(cluster: &TestCluster) -> Vec<(Duration, String)> {
    let entries = cluster.journal().since(0);
    let doing = |entry: Entry| match entry {
        Entry::Request(request) if request.user_agent == TEST_CLIENT && request.is_write() => {
            let info = request.info.as_ref()?;
            let name = match info.name.is_empty() {
                true => timeline::name_in(&request.request_body).unwrap_or_default(),
                false => info.name.clone(),
            };
            let what = format!("{} {} {}/{name}", info.verb, info.resource, info.namespace);
            Some((request.started, what.replace(" /", " ")))
        }
        Entry::Request(_) | Entry::Event(_) => None,
    };
    entries.into_iter().filter_map(doing).collect()
}
