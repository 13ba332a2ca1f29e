//! `Failure`: a run that violates an oracle or a check, with the run that it is compared with.

use std::collections::BTreeMap;

use fake_apiserver::trace;
use fake_apiserver::trace::Run;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::timeline::{Timeline, timeline};
use super::viewer::{first_row, run_of};
use crate::explore::outcomes::{Finding, Violation};
use crate::explore::plans::{Plan, Point};
use crate::explore::trace::{Step, What};
use crate::text::shortened;

/// Maximum number of characters in a headline.
const HEADLINE_CHARS: usize = 300;

/// A run that violates an oracle or a check.
#[derive(Debug)]
pub struct Failure {
    violation: Violation,
    plan: Plan,
    timeline: Timeline,
    /// The reference run and the failing run. There is no reference if the failure occurred before there was one.
    runs: (Option<Run>, Run),
    /// Description of the first step of the test that began while a fault was active.
    went_on: Option<String>,
    /// Names of created objects, by the points of their create requests.
    names: BTreeMap<Point, String>,
    schedules: u64,
}

impl Failure {
    /// Creates the failure of a finding. `start` is the time of day at which runs begin, if replay strings must contain
    /// it.
    pub(crate) fn of(finding: Finding, start: Option<Timestamp>) -> Self {
        let Finding {
            reference,
            mut outcome,
            mut plan,
            violation,
            recorded,
            schedules,
            ..
        } = finding;
        let timeline = timeline(&reference.outcome, &outcome, &plan);
        plan.start = plan.start.or(start);
        let created = |step: &Step| match &step.what {
            What::Request(request) => Some((step.point.clone(), request.creates.clone()?)),
            What::Event { .. } | What::Call { .. } | What::Note(_) => None,
        };
        let names = reference.outcome.trace.iter().chain(&outcome.trace);
        let names = names.filter_map(created).collect();
        let is_compared = !reference.outcome.trace.is_empty();
        let left = is_compared.then(|| {
            let (end, recorded) = (&reference.outcome.end, recorded.unwrap_or_default());
            run_of("reference run", &timeline.left, end, recorded)
        });
        let recorded = outcome.recorded.take().unwrap_or_default();
        let right = run_of("failing run", &timeline.right, &outcome.end, recorded);
        Self {
            violation,
            plan,
            timeline,
            runs: (left, right),
            names,
            went_on: outcome.went_on,
            schedules,
        }
    }

    /// Returns the name of the violated oracle; `always` or `eventually` for a check of the test; or the name of a
    /// check that cannot be disabled, such as `no panic`.
    pub fn oracle(&self) -> &str {
        self.violation.oracle
    }

    /// Describes the failure in words.
    pub fn what(&self) -> &str {
        &self.violation.what
    }

    /// Returns a description of the first step of the test that began before the end of a fault, with its source
    /// location; `None` if there is no such step.
    pub fn went_on(&self) -> Option<&str> {
        self.went_on.as_deref()
    }

    /// Describes the smallest failing plan, with one line for each fault, change of the spec, skipped step and ignored
    /// field.
    pub fn plan(&self) -> Vec<String> {
        self.plan.words(&self.names)
    }

    /// Returns the replay string: the value for `EXPLORE_REPLAY` and the argument of
    /// [`Explore::replay`](crate::explore::Explore::replay).
    pub fn replay(&self) -> String {
        self.plan.to_string()
    }

    /// Returns the number of schedules after which the failure was found, including the failing one; 0 if the reference
    /// run fails or a replay cannot be executed.
    pub fn schedules(&self) -> u64 {
        self.schedules
    }

    /// Returns `true` if the scenario fails without any fault.
    pub(crate) fn has_no_fault(&self) -> bool {
        self.plan.is_empty()
    }

    pub(crate) fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Describes the failure in one sentence: the first difference, and the faults that cause it.
    pub(crate) fn headline(&self) -> String {
        let mut headline = self.violation.detail().to_owned();
        let plan = self.plan();
        if !plan.is_empty() {
            headline = format!("{}; it takes: {}", headline.trim_end_matches('.'), plan.join("; "));
        }
        shortened(&headline, HEADLINE_CHARS)
    }

    /// Adds the failure and its runs to the document of the test called `name`.
    pub(crate) fn add_to(&self, document: &mut trace::Trace, name: &str) {
        let reference = self.runs.0.as_ref().map(|run| {
            document.runs.push(run.clone());
            document.runs.len() - 1
        });
        document.runs.push(self.runs.1.clone());
        let rows: Vec<trace::Row> = match reference {
            Some(_) => self.timeline.places(),
            None => Vec::new(),
        };
        let replay = self.replay();
        document.failures.push(trace::Failure {
            headline: self.headline(),
            oracle: self.oracle().to_owned(),
            what: self.what().to_owned(),
            plan: self.plan(),
            notes: self.went_on.iter().cloned().collect(),
            command: Some(match replay.is_empty() {
                true => format!("cargo test -- --exact {name}"),
                false => format!("EXPLORE_REPLAY='{replay}' cargo test -- --exact {name}"),
            }),
            replay: Some(replay).filter(|it| !it.is_empty()),
            reference,
            failing: document.runs.len() - 1,
            first: first_row(&rows, self.runs.0.as_ref(), &self.runs.1),
            rows,
        });
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "oracle": self.oracle(),
            "what": self.what(),
            "headline": self.headline(),
            "plan": self.plan(),
            "wentOn": self.went_on,
            "replay": self.replay(),
            "schedules": self.schedules,
            "timeline": self.timeline.to_json(),
        })
    }
}
