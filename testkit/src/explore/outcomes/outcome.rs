//! `Outcome`: the result of a run, and `Reference`: the outcome with which other runs are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::counts::Count;
use super::doing::Doing;
use super::end_state::EndState;
use super::generated::Generated;
use super::milestone::Milestone;
use super::recorded::Recorded;
use super::violation::Violation;
use crate::explore::plans::Plan;
use crate::explore::trace::Step;
use crate::mask::{Mask, Upcoming};
use crate::templates::Templates;

/// Objects and fields that returned to an earlier value, with a description.
pub(crate) type Returned = BTreeMap<(String, String), String>;

/// The uids of created or deleted objects, by the key of the object.
pub(crate) type Uids = BTreeMap<String, BTreeSet<String>>;

/// Groups the uids of objects with names that match the same template under one key.
pub(crate) fn grouped(all: &Uids, templates: &Templates) -> Uids {
    let mut grouped = Uids::new();
    for (key, uids) in all {
        let key = templates.key(key).unwrap_or_else(|| key.clone());
        grouped.entry(key).or_default().extend(uids.iter().cloned());
    }
    grouped
}

/// A line that a controller wrote to standard output or standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrote {
    /// Time since the run began.
    pub(crate) at: Duration,
    /// The name of the controller.
    pub(crate) client: String,
    pub(crate) line: String,
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
    /// The end state after more time has passed, if this was requested and the state differs from `end`.
    pub(crate) rested: Option<EndState>,
    /// Objects with a time in their names that were created after the end of the scenario, if this was requested.
    pub(crate) upcoming: Upcoming,
    pub(crate) milestones: Vec<Milestone>,
    /// Number of times the scenario waited for the cluster.
    pub(crate) waited: usize,
    /// Times since the start of the run at which `settle` returned.
    pub(crate) settled_times: Vec<Duration>,
    /// Set if the end could not be judged, because the reference lacked the state to compare it with.
    pub(crate) is_unjudged: bool,
    /// Set if a run in real time failed before the time limit, because a wrong state no longer changed.
    pub(crate) is_hasty: bool,
    /// Number of waits before a failed assertion of the scenario, if the scenario had not waited for the end of the
    /// faults.
    pub(crate) void_at: Option<usize>,
    /// Ordinal of the wait from which the scenario waited for the end of the faults, because a failed assertion was
    /// evaluated again.
    pub(crate) patient_from: Option<usize>,
    /// Descriptions of values that were assigned to objects in a different order from the reference.
    pub(crate) permuted: Vec<String>,
    /// Resources and paths of the fields that differed from the reference in the last comparison.
    pub(crate) unlike: BTreeSet<(String, String)>,
    /// The differences in the last comparison, if all of them may be counts of failures.
    pub(crate) failure_counts: Vec<Count>,
    /// Number of settled steps before the step with a wrong state, if the run ended at that step.
    pub(crate) wrong_step: Option<usize>,
    /// Set if the scenario executed all of its steps.
    pub(crate) is_complete: bool,
    /// Time from the start of the run to the first fault; `None` without a fault.
    pub(crate) faults_begin: Option<Duration>,
    /// Time at which the last fault ended.
    pub(crate) faults_end: Option<Duration>,
    /// Fields that returned to an earlier value.
    pub(crate) returned: Returned,
    /// The server's times of day at the start and at the end of the run.
    pub(crate) times: [Timestamp; 2],
    pub(crate) created: Uids,
    pub(crate) deleted: Uids,
    pub(crate) messages: u64,
    /// The clients that can be crashed.
    pub(crate) controllers: Vec<Arc<str>>,
    /// Writes that the test itself made.
    pub(crate) doings: Vec<Doing>,
    /// Notes for the author of the test: parts of the scenario that test less than they appear to. Only set for
    /// references.
    pub(crate) notes: Vec<String>,
    /// Locations in the test that start controllers that cannot be restarted.
    pub(crate) fixed: Vec<String>,
    /// Time from the last fault to the correct end state, if it exceeded `within`.
    pub(crate) late: Option<Duration>,
    /// Description of the first step of the test that began while a fault was active.
    pub(crate) went_on: Option<String>,
    /// Number of times each controller ended by itself in a way and was restarted.
    pub(crate) ended: BTreeMap<(Arc<str>, String), u32>,
    /// Output of controllers that are processes, oldest line first.
    #[cfg_attr(
        not(all(feature = "processes", unix)),
        expect(dead_code, reason = "only processes write lines")
    )]
    pub(crate) output: Vec<Wrote>,
    /// Digest of all bytes that were sent or stored; 0 unless the configuration enables it.
    pub(crate) digest: u64,
    /// Processor time of the run; in real time, its duration.
    pub(crate) took: Duration,
    /// Bodies and tracing output, if the run was executed for the report.
    pub(crate) recorded: Option<Recorded>,
}

impl Outcome {
    /// Returns the end state after all timers have fired, if the run waited for them; otherwise the end state.
    pub(crate) fn at_rest(&self) -> &EndState {
        self.rested.as_ref().unwrap_or(&self.end)
    }

    /// Returns the time of the first change that the test makes after `after`, if the test does not wait for the
    /// cluster before this change but advances the clock.
    pub(crate) fn next_change(&self, after: Duration) -> Option<Duration> {
        let next = self.doings.iter().map(|it| it.at).filter(|at| *at > after).min()?;
        let waits = self.settled_times.iter().any(|it| (after..=next).contains(it));
        (!waits).then_some(next)
    }

    /// Returns a mask of the differences between the end states of two runs without faults, and of the generated names
    /// of objects that were created or deleted in only one of them.
    pub(crate) fn mask(&self, other: &Self, ignored: &[String], began: Timestamp) -> Mask {
        let mut mask = self.end.mask(&other.end, ignored, began);
        for [one, others] in [[&self.created, &other.created], [&self.deleted, &other.deleted]] {
            let only = |one: &'_ Uids, others: &Uids| {
                let keys = one.keys().filter(|key| !others.contains_key(*key));
                keys.cloned().collect::<Vec<String>>()
            };
            let (one, others) = (only(one, others), only(others, one));
            mask.templates.add(Templates::between(
                one.iter().map(String::as_str),
                others.iter().map(String::as_str),
            ));
        }
        mask
    }
}

/// The run without faults with which other runs are compared.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    /// The plan of the run. It has no faults, but may change the input.
    pub(crate) plan: Plan,
    pub(crate) outcome: Outcome,
    pub(crate) mask: Mask,
    /// Values that controllers generate, with their copies.
    pub(crate) generated: Generated,
    /// State each time the scenario has settled.
    pub(crate) milestones: Arc<[Milestone]>,
}

impl Reference {
    /// Excludes fields from all further comparisons.
    pub(crate) fn ignore(&self, fields: &BTreeSet<(String, String)>) {
        let masks = self.milestones.iter().map(|it| &it.mask).chain([&self.mask]);
        masks.for_each(|it| it.learn(fields));
    }
}
