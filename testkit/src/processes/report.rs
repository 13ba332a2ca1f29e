//! `Report`: the failures that an exploration found, as text, JSON and JUnit.

use std::fmt::{self, Write as _};
use std::time::Duration;

use fake_apiserver::trace::{Log, Marks, Run, Trace};
use serde_json::{Value, json};

use super::hints::hints;
use crate::explore::parts::{Finding, Recorded, Wrote, counted};
use crate::explore::{Coverage, Failure};

/// Maximum number of output lines of the controllers that are shown for a failure.
const OUTPUT_SHOWN: usize = 25;

/// Name of the field that requires all single faults.
const ALL_SINGLES: &str = "allSingles";

/// Description of the failure of a `sometimes` check.
const NEVER: &str = "it did not hold in any run";

/// The findings of an exploration of processes.
#[derive(Debug)]
pub struct Report {
    /// The file of the scenario.
    name: String,
    pub(crate) found: Vec<Found>,
    /// Plans that failed only in some of their runs, with descriptions of the failures.
    pub(crate) unsure: Vec<(String, String)>,
    pub(crate) notes: Vec<String>,
    /// Number of plans that failed once and were not repeated, because time ran out.
    pub(crate) unconfirmed: usize,
    /// The `sometimes` checks that never held.
    pub(crate) never: Vec<String>,
    /// Kinds of faults that were never tried.
    pub(crate) untried_kinds: Vec<&'static str>,
    pub(crate) coverage: Coverage,
    /// Set if untried single faults fail the exploration.
    pub(crate) requires_all_singles: bool,
    pub(crate) spent: Spent,
    pub(crate) is_interrupted: bool,
    pub(crate) is_replay: bool,
    /// The part of the search that was run, such as `2/8`; `None` for the whole search.
    pub(crate) shard: Option<String>,
}

/// Time and memory used by an exploration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// Number of runs, including references and repetitions.
    pub(crate) runs: u64,
    pub(crate) elapsed: Duration,
    /// Processor time of this process.
    pub(crate) own: Duration,
    /// Processor time of the controllers.
    pub(crate) controllers: Duration,
    /// Peak memory of the largest controller.
    pub(crate) memory_bytes: u64,
}

/// A failure, the number of runs in which it occurred, and the output of the controllers.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) failure: Failure,
    recurrence: (u32, u32),
    output: Vec<Wrote>,
}

impl Found {
    pub(crate) fn of(mut finding: Finding) -> Self {
        let output = std::mem::take(&mut finding.outcome.output);
        finding.recorded = Some(recorded(&finding.reference.outcome.output));
        finding.outcome.recorded = Some(recorded(&output));
        Self {
            output,
            recurrence: finding.recurrence,
            failure: Failure::of(finding, None),
        }
    }

    /// Returns the last lines of the output of all controllers.
    fn tail(&self) -> Vec<&Wrote> {
        let skipped = self.output.len().saturating_sub(OUTPUT_SHOWN);
        self.output[skipped..].iter().collect()
    }

    fn to_json(&self) -> Value {
        let (failed, made) = self.recurrence;
        let line = |it: &Wrote| json!({"seconds": it.at.as_secs_f64(), "controller": it.client, "line": it.line});
        json!({
            "oracle": self.failure.oracle(),
            "what": self.failure.what(),
            "plan": self.failure.plan(),
            "replay": self.failure.replay(),
            "failedRuns": failed,
            "runs": made,
            "schedules": self.failure.schedules(),
            "timeline": self.failure.timeline().to_json(),
            "output": self.output.iter().map(line).collect::<Vec<_>>(),
        })
    }
}

/// Converts the output of processes for the viewer, which shows each line next to the steps that happened at that time.
fn recorded(output: &[Wrote]) -> Recorded {
    let log = |it: &Wrote| Log {
        at: it.at.as_secs_f64(),
        step: usize::MAX,
        target: it.client.clone(),
        text: it.line.clone(),
        ..Log::default()
    };
    Recorded {
        marks: Marks {
            logs: output.iter().map(log).collect(),
            ..Marks::default()
        },
        ..Recorded::default()
    }
}

impl Spent {
    fn runs_per_second(&self) -> f64 {
        self.runs as f64 / self.elapsed.as_secs_f64().max(0.001)
    }

    fn processor_per_run(&self) -> f64 {
        (self.own + self.controllers).as_secs_f64() / self.runs.max(1) as f64
    }
}

impl Report {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            found: Vec::new(),
            unsure: Vec::new(),
            notes: Vec::new(),
            unconfirmed: 0,
            never: Vec::new(),
            untried_kinds: Vec::new(),
            coverage: Coverage::default(),
            requires_all_singles: false,
            spent: Spent::default(),
            is_interrupted: false,
            is_replay: false,
            shard: None,
        }
    }

    pub(crate) fn interrupted(mut self) -> Self {
        self.is_interrupted = true;
        self
    }

    /// Returns `true` if no failure was found, if each `sometimes` check held, and, if the scenario sets
    /// `budget.allSingles`, if every single fault was tried.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.found.is_empty() && self.never().is_empty() && self.untried().is_none()
    }

    /// Describes the single faults that were not tried although the scenario requires all of them. `None` for a replay,
    /// and for a search that was interrupted.
    fn untried(&self) -> Option<String> {
        let (tried, all) = self.coverage.singles;
        let is_required = self.requires_all_singles && !self.is_replay && !self.is_interrupted;
        (is_required && tried < all).then(|| {
            format!(
                "{} of {} single faults were not tried: increase the budget, or run a part of the search with --shard",
                counted(all - tried),
                counted(all)
            )
        })
    }

    /// Returns the `sometimes` checks that never held. Empty for a shard, because a check may hold in a different
    /// shard.
    fn never(&self) -> &[String] {
        match self.shard {
            None => &self.never,
            Some(_) => &[],
        }
    }

    /// Returns hints about errors in the output of the controllers.
    pub(crate) fn hints(&self) -> Vec<String> {
        hints(self.found.iter().flat_map(|it| &it.output).map(|it| it.line.as_str()))
    }

    /// Returns `true` if the exploration was stopped before its end.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// Returns the failures, the most certain one first.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.found.iter().map(|it| &it.failure)
    }

    /// Returns the coverage.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Describes plans that failed only in some of their runs. They do not count as failures, because they are not
    /// reproducible.
    pub fn unsure(&self) -> impl Iterator<Item = &str> {
        self.unsure.iter().map(|(_, what)| what.as_str())
    }

    /// Returns the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let coverage = &self.coverage;
        let unsure = self
            .unsure
            .iter()
            .map(|(plan, what)| json!({"replay": plan, "what": what}));
        json!({
            "scenario": self.name,
            "shard": self.shard,
            "failures": self.found.iter().map(Found::to_json).collect::<Vec<_>>(),
            "unsure": unsure.collect::<Vec<_>>(),
            "notes": self.notes,
            "never": self.never,
            "untriedKinds": self.untried_kinds,
            "isInterrupted": self.is_interrupted,
            "coverage": {
                "plans": coverage.schedules,
                "schedules": coverage.schedules,
                "isWhole": coverage.is_whole,
                "states": coverage.states,
                "unjudged": coverage.unjudged,
                "points": coverage.points,
                "writePoints": coverage.write_points,
                "singles": [coverage.singles.0, coverage.singles.1],
                "pairs": [coverage.pairs.0, coverage.pairs.1],
                "orders": coverage.orders,
                "swarms": coverage.swarms,
                "messages": coverage.messages,
            },
            "seconds": self.spent.elapsed.as_secs_f64(),
            "runs": self.spent.runs,
            "runsPerSecond": self.spent.runs_per_second(),
            "processorSecondsPerRun": self.spent.processor_per_run(),
            "memoryBytes": self.spent.memory_bytes,
        })
    }

    /// Returns the report as JUnit XML: a test case for each failure, or a single passing test case.
    #[must_use]
    pub fn to_junit(&self) -> String {
        let time = self.spent.elapsed.as_secs_f64();
        let untried = self.untried();
        let failures = self.found.len() + self.never().len() + usize::from(untried.is_some());
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let name = escaped(&self.name);
        // Writing to a String does not fail.
        let _ = writeln!(
            xml,
            "<testsuite name=\"drydock explore\" tests=\"{}\" failures=\"{failures}\" time=\"{time:.3}\">",
            failures.max(1)
        );
        if failures == 0 {
            let _ = writeln!(
                xml,
                "  <testcase classname=\"{name}\" name=\"no failure found\" time=\"{time:.3}\"/>"
            );
        }
        for found in &self.found {
            let plan = found.failure.plan().join("; ");
            let plan = if plan.is_empty() { "without any fault" } else { &plan };
            let _ = writeln!(xml, "  <testcase classname=\"{name}\" name=\"{}\">", escaped(plan));
            let _ = writeln!(
                xml,
                "    <failure type=\"{}\" message=\"{}\">{}</failure>",
                escaped(found.failure.oracle()),
                escaped(found.failure.what()),
                escaped(&self.shown(found))
            );
            xml.push_str("  </testcase>\n");
        }
        for never in self.never() {
            let (oracle, what) = (escaped(&format!("sometimes {never:?}")), escaped(NEVER));
            let _ = writeln!(xml, "  <testcase classname=\"{name}\" name=\"{oracle}\">");
            let _ = writeln!(
                xml,
                "    <failure type=\"{oracle}\" message=\"{what}\"/>\n  </testcase>"
            );
        }
        if let Some(untried) = untried {
            let what = escaped(&untried);
            let _ = writeln!(xml, "  <testcase classname=\"{name}\" name=\"{ALL_SINGLES}\">");
            let _ = writeln!(
                xml,
                "    <failure type=\"{ALL_SINGLES}\" message=\"{what}\"/>\n  </testcase>"
            );
        }
        xml.push_str("</testsuite>\n");
        xml
    }

    /// Returns the steps of the failing runs and their references as the document that the [trace
    /// viewer](crate::traces) shows, with the output of the processes.
    #[must_use]
    pub fn trace(&self) -> Trace {
        let mut trace = Trace {
            title: self.name.clone(),
            facts: vec![("explored".to_owned(), self.coverage.line())],
            notes: self.notes.clone(),
            ..Trace::default()
        };
        for found in &self.found {
            found.failure.add_to(&mut trace, &self.name);
            let replay = found.failure.replay();
            if let Some(shown) = trace.failures.last_mut() {
                shown.command = Some(self.command(&replay));
            }
        }
        trace.headline = match trace.failures.first() {
            Some(failure) => failure.headline.clone(),
            None if self.is_success() => "no failure was found".to_owned(),
            None if self.never.is_empty() => self.untried().unwrap_or_default(),
            None => format!(
                "no run fails, but these conditions did not hold in any run: {}",
                self.never.join(", ")
            ),
        };
        if trace.runs.is_empty() {
            let name = "no failing run".to_owned();
            trace.runs.push(Run { name, ..Run::default() });
        }
        trace
    }

    /// Returns the report as a single page of HTML without external resources: the [trace viewer](crate::traces).
    #[must_use]
    pub fn to_html(&self) -> String {
        self.trace().to_html()
    }

    /// Returns the command that replays a failure.
    fn command(&self, replay: &str) -> String {
        match replay {
            "" => format!("drydock explore {}", self.name),
            replay => format!("drydock explore {} --replay '{replay}'", self.name),
        }
    }

    /// Describes one failure as text.
    fn shown(&self, found: &Found) -> String {
        let mut text = String::new();
        let plan = found.failure.plan();
        let headline = match plan.is_empty() {
            true => "the scenario fails without any fault:",
            false => "the scenario fails with:",
        };
        let _ = writeln!(text, "{headline}");
        for line in plan {
            let _ = writeln!(text, "  {line}");
        }
        let _ = writeln!(text, "\nviolated: {}: {}", found.failure.oracle(), found.failure.what());
        let (failed, made) = found.recurrence;
        if made > 1 {
            let _ = writeln!(text, "the violation occurred in {failed} of {made} runs");
        }
        if let Some(went_on) = found.failure.went_on() {
            let _ = writeln!(text, "note: {went_on}");
        }
        let _ = writeln!(text, "\n{}", found.failure.timeline());
        let tail = found.tail();
        if !tail.is_empty() {
            let _ = writeln!(text, "the last output of the controllers:");
        }
        for Wrote { at, client, line } in tail {
            let _ = writeln!(text, "  {:>8.3}s {client}: {line}", at.as_secs_f64());
        }
        let replay = found.failure.replay();
        if !replay.is_empty() {
            let _ = writeln!(text, "to replay: {}", self.command(&replay));
        }
        text
    }
}

/// Escapes a string for XML, and drops control characters except for line breaks and tabs.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(letter),
            letter if letter.is_control() => {}
            letter => escaped.push(letter),
        }
    }
    escaped
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, found) in self.found.iter().enumerate() {
            writeln!(
                f,
                "failure {} of {}: {}",
                number + 1,
                self.found.len(),
                self.shown(found)
            )?;
        }
        for (plan, what) in &self.unsure {
            writeln!(
                f,
                "not a failure, because it does not recur: {what}\n  (to replay: {plan})"
            )?;
        }
        for never in self.never() {
            writeln!(f, "violated: sometimes {never:?}: {NEVER}")?;
        }
        if let Some(untried) = self.untried() {
            writeln!(f, "violated: {ALL_SINGLES}: {untried}")?;
        }
        for note in &self.notes {
            // The notes are written for tests.
            writeln!(f, "note: {}", note.replace("EXPLORE_REPLAY=", "--replay "))?;
        }
        if self.is_interrupted {
            writeln!(f, "interrupted: the search is not complete")?;
        }
        match (self.is_success(), self.is_replay, self.unconfirmed) {
            (true, true, _) => writeln!(f, "no failure: the replay passes")?,
            (true, false, 0) => writeln!(f, "no failure found")?,
            (true, false, count) => writeln!(
                f,
                "no failure was confirmed, but {count} of the plans failed once: increase the budget to repeat them"
            )?,
            (false, ..) => {}
        }
        let spent = &self.spent;
        if !self.is_replay {
            writeln!(f, "explored: {}", self.coverage.line())?;
            if !self.untried_kinds.is_empty() {
                writeln!(f, "not tried: {}", self.untried_kinds.join(", "))?;
            }
        }
        write!(
            f,
            "{} runs in {:.1?}: {:.1} runs/s, {:.2} CPU-s a run; the largest process has {} MiB",
            counted(spent.runs),
            spent.elapsed,
            spent.runs_per_second(),
            spent.processor_per_run(),
            spent.memory_bytes >> 20
        )
    }
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn strings_are_escaped_for_xml() {
        assert_eq!(escaped("a<b & \"c\"\u{1b}[0m\n"), "a&lt;b &amp; &quot;c&quot;[0m\n");
    }
}
