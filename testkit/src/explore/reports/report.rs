//! `Report`: the findings and the coverage of an exploration.

use std::fmt;
use std::path::PathBuf;

use fake_apiserver::trace::{Run, Trace};
use jiff::Timestamp;

use super::failure::Failure;
use crate::explore::files::directory;
use crate::explore::outcomes::{Finding, Nondeterminism, OTHER_CLOCK};
use crate::explore::search::{Coverage, Shard, counted};
use crate::seeded_hash;

/// The findings of an exploration. Its `Display` output is the message of a failed test.
#[derive(Debug)]
pub struct Report {
    name: String,
    pub(crate) coverage: Coverage,
    pub(crate) nondeterminism: Vec<Nondeterminism>,
    /// Notes for the author of the test, such as parts of the scenario that test less than they appear to.
    pub(crate) notes: Vec<String>,
    /// The `sometimes` checks that never held.
    pub(crate) never: Vec<String>,
    pub(crate) requires_all_singles: bool,
    /// Kinds of faults that were not tried before the search ended.
    pub(crate) untried_kinds: Vec<&'static str>,
    /// The part of the search that the report covers.
    pub(crate) shard: Shard,
    /// The failures, the most certain one first.
    failures: Vec<Failure>,
    files: Vec<PathBuf>,
}

impl Report {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            coverage: Coverage::default(),
            nondeterminism: Vec::new(),
            never: Vec::new(),
            requires_all_singles: false,
            untried_kinds: Vec::new(),
            shard: Shard::WHOLE,
            notes: Vec::new(),
            failures: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Adds a failure. `start` is the time of day at which runs begin, if replay strings must contain it.
    pub(crate) fn failed(mut self, finding: Finding, start: Option<Timestamp>) -> Self {
        self.failures.push(Failure::of(finding, start));
        self
    }

    /// Adds notes that the report does not contain yet.
    pub(crate) fn note(&mut self, notes: impl IntoIterator<Item = String>) {
        for note in notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    /// Returns `true` if no failure was found, all `sometimes` checks held, and, if this
    /// [is required](crate::explore::Explore::require_all_singles), all single faults, spec changes and sequences of
    /// changes were tried. A shard does not evaluate `sometimes` checks.
    pub fn is_success(&self) -> bool {
        // The check may have held in a run of another shard.
        let is_never = self.shard.is_whole() && !self.never.is_empty();
        self.failures.is_empty() && !is_never && !(self.requires_all_singles && self.lacks_singles())
    }

    /// Returns `true` if single faults, changes of a spec or sequences of changes remain untried.
    fn lacks_singles(&self) -> bool {
        let Coverage { singles, changes, .. } = self.coverage;
        singles.0 < singles.1 || changes.0 < changes.1 || self.coverage.sequences < self.coverage.all_sequences
    }

    /// Describes the untried part of the search.
    fn untried(&self) -> String {
        let Coverage { singles, changes, .. } = self.coverage;
        let lacks = [
            (changes.1 - changes.0, "changes"),
            (
                self.coverage.all_sequences.saturating_sub(self.coverage.sequences),
                "sequences of changes",
            ),
            (singles.1 - singles.0, "single faults"),
        ];
        let lacks = lacks.into_iter().filter(|(count, _)| *count > 0);
        let mut text = lacks
            .map(|(count, what)| format!("{} {what}", counted(count)))
            .collect::<Vec<_>>()
            .join(" and ");
        text.push_str(" were not tried");
        if singles.1 == 0 {
            text.push_str(", and no single fault was tried");
        }
        if !self.untried_kinds.is_empty() {
            text.push_str(&format!(" (untried kinds: {})", self.untried_kinds.join(", ")));
        }
        text
    }

    /// Prints the report of an exploration without findings: its coverage, its notes, and suggestions if the coverage
    /// is incomplete.
    #[expect(
        clippy::print_stderr,
        reason = "a test that tries less than it appears to must be visible; the test runner captures it"
    )]
    pub(crate) fn print(&self) {
        eprintln!("{}: {self}", self.name);
    }

    /// Returns the most certain failure, if any.
    pub fn failure(&self) -> Option<&Failure> {
        self.failures.first()
    }

    /// Returns at most three failures, the most certain one first. They violate different oracles, or concern different
    /// resources or fields. After the first failure, the search continues for as many schedules as it took to find that
    /// failure (at least 10, at most 100), within its bounds.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Returns the coverage.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Describes differences between runs of the same plan. If there are any, the test depends on more than its seed,
    /// for example on a real clock or on the order of a `HashMap`. This is not a failure of the controller.
    pub fn nondeterminism(&self) -> Vec<String> {
        self.nondeterminism.iter().map(|it| it.what.clone()).collect()
    }

    /// Lists notes for the author of the test: parts of the scenario that test less than they appear to, such as
    /// controllers that cannot be crashed because they were started by [`TestCluster::run`](crate::TestCluster::run),
    /// and injected faults that did not match any request; controllers that read the machine's clock; and differences
    /// that do not count as failures.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the report as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        let coverage = &self.coverage;
        serde_json::json!({
            "test": self.name,
            "shard": self.shard.to_string(),
            "failure": self.failure().map(Failure::to_json),
            "failures": self.failures.iter().map(Failure::to_json).collect::<Vec<_>>(),
            "never": self.never,
            "untriedKinds": self.untried_kinds,
            "notes": self.notes,
            "nondeterminism": self.nondeterminism(),
            "coverage": {
                "schedules": coverage.schedules,
                "points": coverage.points,
                "writePoints": coverage.write_points,
                "changes": [coverage.changes.0, coverage.changes.1],
                "sequences": coverage.sequences,
                "allSequences": coverage.all_sequences,
                "singles": [coverage.singles.0, coverage.singles.1],
                "pairs": [coverage.pairs.0, coverage.pairs.1],
                "orders": coverage.orders,
                "swarms": coverage.swarms,
                "unjudged": coverage.unjudged,
                "states": coverage.states,
                "messages": coverage.messages,
                "isWhole": coverage.is_whole,
                "seconds": coverage.elapsed.as_secs_f64(),
                "processorSeconds": coverage.processor_time.as_secs_f64(),
            },
        })
    }

    /// Returns the failures and the steps of their runs as the document that the [trace viewer](crate::traces) shows.
    pub fn trace(&self) -> Trace {
        let mut trace = Trace {
            title: self.name.clone(),
            facts: vec![("explored".to_owned(), self.coverage.to_string())],
            notes: self.notes.clone(),
            ..Trace::default()
        };
        let clocks = self.nondeterminism().into_iter();
        trace
            .notes
            .extend(clocks.map(|it| format!("uncontrolled nondeterminism: {it}")));
        if !self.never.is_empty() {
            trace
                .notes
                .push(format!("`sometimes` checks that never held: {}", self.never.join(", ")));
        }
        for failure in &self.failures {
            failure.add_to(&mut trace, &self.name);
        }
        trace.headline = match trace.failures.first() {
            Some(failure) => failure.headline.clone(),
            None if self.is_success() => "no failure was found".to_owned(),
            None => "no run fails, but the exploration is not complete".to_owned(),
        };
        if trace.runs.is_empty() {
            trace.runs.push(Run {
                name: "no failing run".to_owned(),
                ..Run::default()
            });
        }
        trace
    }

    /// Returns the report as a single page of HTML without external resources: the [trace viewer](crate::traces).
    pub fn to_html(&self) -> String {
        self.trace().to_html()
    }

    /// Writes the page and the JSON file to the directory of the reports. If the directory is unknown or not writable,
    /// no files are written.
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

/// Returns `true` for notes about clocks. They are listed first, because they explain many failures.
fn is_about_clocks(note: &str) -> bool {
    note.contains(OTHER_CLOCK)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in self.notes.iter().filter(|it| is_about_clocks(it)) {
            writeln!(f, "note: {note}\n")?;
        }
        match self.failure() {
            Some(failure) => {
                if failure.has_no_fault() {
                    writeln!(f, "the scenario fails without any fault:")?;
                } else {
                    writeln!(f, "the scenario fails with:")?;
                }
                for line in failure.plan() {
                    writeln!(f, "  {line}")?;
                }
                writeln!(f, "\nviolated: {}: {}\n", failure.oracle(), failure.what())?;
                if let Some(went_on) = failure.went_on() {
                    writeln!(f, "note: {went_on}\n")?;
                }
                writeln!(f, "{}", failure.timeline())?;
                writeln!(f, "to replay: EXPLORE_REPLAY='{}'", failure.replay())?;
                for (failure, number) in self.failures.iter().skip(1).zip(2..) {
                    writeln!(f, "\nfailure {number} of {}, with:", self.failures.len())?;
                    for line in failure.plan() {
                        writeln!(f, "  {line}")?;
                    }
                    writeln!(f, "violated: {}: {}", failure.oracle(), failure.what())?;
                    writeln!(f, "to replay: EXPLORE_REPLAY='{}'", failure.replay())?;
                }
            }
            None if self.never.is_empty() => {}
            None => writeln!(f, "`sometimes` checks that never held: {}", self.never.join(", "))?,
        }
        write!(f, "explored: {}", self.coverage)?;
        if self.failures.is_empty() && self.lacks_singles() {
            let word = if self.requires_all_singles { "error" } else { "warning" };
            // Runs spend most of their time in dependencies, which are usually built with the same profile as this
            // crate.
            let faster = match cfg!(debug_assertions) {
                true => {
                    ", or set `opt-level = 1` for `[profile.dev]` in the workspace's Cargo.toml, which allows several \
                     times as many runs"
                }
                false => "",
            };
            write!(
                f,
                "\n{word}: {}: raise `budget` (CPU time) or `schedules`, choose fewer \
                 `faults`{faster}",
                self.untried()
            )?;
        }
        for it in self.nondeterminism.iter().take(3) {
            write!(
                f,
                "\nuncontrolled nondeterminism, in two runs of the same plan '{}': {}",
                it.plan, it.what
            )?;
        }
        if let (false, Some(remedy)) = (self.nondeterminism.is_empty(), seeded_hash::REMEDY) {
            write!(f, "\nnote: {remedy}")?;
        }
        for note in self.notes.iter().filter(|it| !is_about_clocks(it)) {
            write!(f, "\nnote: {note}")?;
        }
        for path in &self.files {
            write!(f, "\nsee {}", path.display())?;
        }
        Ok(())
    }
}
