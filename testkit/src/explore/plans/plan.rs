//! A plan is a list of faults at points. Its string form is the replay string.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use super::action::Action;
use super::faults::{OnRun, Struck};
use super::point::{Point, escaped, given, next, words};

/// A fault and the point at which it takes effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Perturbation {
    pub(crate) point: Point,
    pub(crate) action: Action,
}

impl fmt::Display for Perturbation {
    /// Formats the fault as `crash-after=1000@operator:patch:configmaps:default/volume#1`; times are in milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.action, self.point)
    }
}

impl Perturbation {
    /// Describes the fault: `crash operator after patch configmaps default/volume; it restarts 1s later`.
    fn words(&self, names: &BTreeMap<Point, String>) -> String {
        let words = words(&self.point, names);
        let struck = Struck {
            client: &words.client,
            verb: words.verb,
            what: words.what,
        };
        (self.action.fault.row().words)(&struck, self.action.value)
    }
}

/// The faults of a run and changes to its scenario. Its string form is the replay string.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Plan {
    pub(crate) faults: Vec<Perturbation>,
    /// Names of the scenario's steps that are skipped.
    pub(crate) skipped: Vec<String>,
    /// Names of the changes that are made to the explored spec, in order.
    pub(crate) changes: Vec<String>,
    /// Object to create instead of the explored one, as JSON. Only set for references.
    pub(crate) fresh: Option<String>,
    /// Fields that are not compared, because they were found to count the failures of this plan, as strings such as
    /// `tasks.example.com default/web status.failedAttempts`.
    pub(crate) counted: BTreeSet<String>,
    /// Controller that starts late, and its delay. Only set for the runs without faults that failures are compared
    /// with.
    pub(crate) late_start: Option<(String, Duration)>,
    /// Controller that is disconnected between two times since the start of the run, so that it receives all changes of
    /// that period together. Only set for the runs without faults that failures are compared with.
    pub(crate) cut_off: Option<(String, [Duration; 2])>,
    /// Set if the test pauses between changes that it usually makes at the same time, so that controllers observe each
    /// of them. Only set for the runs without faults that failures are compared with.
    pub(crate) is_spaced: bool,
    /// Objects in the order in which all clients observe their creation, one at a time. Only set for the runs without
    /// faults that failures are compared with.
    pub(crate) arrivals: Vec<String>,
    /// Ordinal of a wait, from 1. From this wait on, the test waits until the faults have ended and the state equals
    /// the reference's, even if the plan allows it to continue during faults. Only set when a run is repeated because
    /// an assertion failed.
    pub(crate) patient_from: Option<usize>,
    /// The server's time of day at the start of the run, if a replay string sets it. Default: the start time of the
    /// exploration.
    pub(crate) start: Option<Timestamp>,
}

impl Plan {
    pub(crate) fn single(point: &str, action: Action) -> Self {
        let point = point.to_owned();
        Self {
            faults: vec![Perturbation { point, action }],
            ..Self::default()
        }
    }

    /// Returns `true` if the test continues during faults.
    pub(crate) fn overlaps(&self) -> bool {
        self.has(OnRun::ContinueEarly)
    }

    /// Returns `true` if a fault of the plan has this effect on the run.
    pub(crate) fn has(&self, effect: OnRun) -> bool {
        self.faults.iter().any(|it| it.action.effects().run == Some(effect))
    }

    /// Returns a copy of the plan with an additional fault.
    pub(crate) fn and(&self, point: &str, action: Action) -> Self {
        let mut plan = self.clone();
        plan.faults.push(Perturbation {
            point: point.to_owned(),
            action,
        });
        plan
    }

    /// Returns `true` if a fault of the plan makes a client's request or call fail.
    pub(crate) fn has_failures(&self) -> bool {
        self.faults.iter().any(|it| it.action.is_failure())
    }

    /// Returns the plan with faults with which the same requests fail, but are not executed.
    pub(crate) fn unexecuted(&self) -> Self {
        let mut plan = self.clone();
        for fault in &mut plan.faults {
            fault.action = fault.action.unexecuted();
        }
        plan
    }

    /// Returns plans with more failures: the next message of the same kind about the same object is refused as well,
    /// and an outage of an external system lasts twice as long. The first plan has more of all failures. If there are
    /// several failures, each further plan has more of one of them, because an additional failure may change the number
    /// of messages before the next one.
    pub(crate) fn with_more_failures(&self) -> Vec<Self> {
        let failures = self.faults.iter().filter(|it| it.action.is_failure());
        let each: Vec<&Perturbation> = failures.collect();
        let alone = each
            .iter()
            .filter(|_| each.len() > 1)
            .map(|it| self.failing_more(&[it]));
        [self.failing_more(&each)].into_iter().chain(alone).collect()
    }

    fn failing_more(&self, failures: &[&Perturbation]) -> Self {
        let mut plan = self.clone();
        for fault in failures.iter().copied() {
            let lasting = fault.action.window().filter(|_| fault.action.effects().call.is_some());
            if let Some(time) = lasting {
                let longer = plan.faults.iter_mut().filter(|it| *it == fault);
                longer.for_each(|it| it.action = fault.action.lasting(time * 2));
            }
            // A short outage of twice the duration may still end before the next call.
            if let Some(next) = next(&fault.point) {
                plan = plan.and(&next, Action::REFUSED);
            }
        }
        plan
    }

    /// Parses a replay string.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        for part in text.split(';').map(str::trim).filter(|it| !it.is_empty()) {
            if let Some(step) = part.strip_prefix("skip=") {
                plan.skipped.push(given(step).into_owned());
                continue;
            }
            if let Some(change) = part.strip_prefix("change=") {
                plan.changes.push(given(change).into_owned());
                continue;
            }
            if let Some(field) = part.strip_prefix("count=") {
                plan.counted.insert(given(field).into_owned());
                continue;
            }
            let wrong = || format!("`{part}` in the replay string is not a known fault");
            if let Some(time) = part.strip_prefix("time=") {
                plan.start = Some(time.parse().map_err(|_| wrong())?);
                continue;
            }
            let (action, point) = part.split_once('@').ok_or_else(wrong)?;
            let action = Action::parse(action).ok_or_else(wrong)?;
            plan.faults.push(Perturbation {
                point: point.to_owned(),
                action,
            });
        }
        Ok(plan)
    }

    /// Returns `true` if the plan contains no faults, skipped steps or changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.faults.is_empty() && self.skipped.is_empty() && self.changes.is_empty()
    }

    /// Returns `true` if the plan changes the spec without any fault.
    pub(crate) fn is_sequence(&self) -> bool {
        self.faults.is_empty() && !self.changes.is_empty()
    }

    /// Describes the plan, with one line for each change, fault, skipped step and ignored field. `names` contains the
    /// names of created objects by the points of their create requests.
    pub(crate) fn words(&self, names: &BTreeMap<Point, String>) -> Vec<String> {
        let skipped = self.skipped.iter().map(|step| format!("skip the step {step:?}"));
        let changes = self.changes.iter().map(|change| format!("change {change}"));
        let faults = self.faults.iter().map(|it| it.words(names));
        let counted = self
            .counted
            .iter()
            .map(|field| format!("ignore {field}, which counts failures"));
        changes.chain(faults).chain(skipped).chain(counted).collect()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = self.faults.iter().map(ToString::to_string);
        let skipped = self.skipped.iter().map(|step| format!("skip={}", escaped(step)));
        let changes = self.changes.iter().map(|change| format!("change={}", escaped(change)));
        let counted = self.counted.iter().map(|field| format!("count={}", escaped(field)));
        let start = self.start.map(|it| format!("time={it}"));
        f.write_str(
            &changes
                .chain(faults)
                .chain(skipped)
                .chain(counted)
                .chain(start)
                .collect::<Vec<_>>()
                .join(";"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::namespaced("lose@b:patch:pods:shop/a#2", "patch pods shop/a (number 2)")]
    #[case::numbered_within_a_step("lose@b:patch:pods:shop/a#step2", "patch pods shop/a (the first in step 2)")]
    #[case::cluster_scoped("lose@b:patch:nodes:/a#1", "patch nodes a")]
    #[case::generated_name("lose@b:create:pods:shop/#1", "create pods in shop")]
    #[case::cluster_scoped_with_a_generated_name("lose@b:create:nodes:/#1", "create nodes")]
    fn requests_in_plans_are_described_in_words(#[case] replay: &str, #[case] told: &str) {
        let words = Plan::parse(replay).expect("the plan is valid").words(&BTreeMap::new());
        assert_eq!(words, [format!("execute {told} of b and lose the response")]);
    }

    #[test]
    fn replay_string_round_trips() {
        let text = "crash-after=1000@operator:patch:configmaps:default/volume#1;conflict@b:update:pods:shop/a#2;\
                    hold=12000@operator:event:pods:default/web-0#1;restart@operator;skew=-30000@operator;\
                    half-open=300000@operator:event:pods:default/web-0#2;drop@operator:event:pods:/#1;\
                    large-versions@server;skip=scale%20down%3B%20wait;\
                    count=jobs%20default/web%20status.failed;time=2026-11-22T05:00:00Z";
        let plan = Plan::parse(text).expect("the plan is valid");
        assert_eq!(plan.to_string(), text);
        assert_eq!(
            plan.words(&BTreeMap::new())[0],
            "crash operator after patch configmaps default/volume; it restarts 1s later"
        );
        let last = plan.words(&BTreeMap::new()).split_off(plan.faults.len());
        let expected = [
            "skip the step \"scale down; wait\"",
            "ignore jobs default/web status.failed, which counts failures",
        ];
        assert_eq!(last, expected);
    }

    #[test]
    fn error_for_an_unknown_fault_contains_its_name() {
        let error = Plan::parse("explode@a:b:c:d#1").expect_err("the fault is unknown");
        assert_eq!(error, "`explode@a:b:c:d#1` in the replay string is not a known fault");
    }
}
