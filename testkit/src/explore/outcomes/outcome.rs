//! `Outcome`: the result of a run, and the `Reference` that runs are compared with.

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
use crate::mask::Mask;
use crate::templates::Templates;

/// Objects and fields that returned to an earlier value, with a description.
pub(crate) type Returned = BTreeMap<(String, String), String>;

/// The uids of created or deleted objects, by the names of the objects.
pub(crate) type Uids = BTreeMap<String, BTreeSet<String>>;

/// Returns the uids with one key for all names that match the same template.
pub(crate) fn grouped(all: &Uids, templates: &Templates) -> Uids {
    let mut grouped = Uids::new();
    for (key, uids) in all {
        let key = templates.key(key).unwrap_or_else(|| key.clone());
        grouped.entry(key).or_default().extend(uids.iter().cloned());
    }
    grouped
}

/// A line that a controller wrote to its standard output or error.
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
    /// The end state after more time has passed, if it was requested and differs from `end`.
    pub(crate) rested: Option<EndState>,
    pub(crate) milestones: Vec<Milestone>,
    /// Number of times the scenario waited for the cluster.
    pub(crate) waited: usize,
    /// Virtual times since the start of the run at which a wait of the scenario ended.
    pub(crate) settled_times: Vec<Duration>,
    /// Set if the end could not be judged, because the reference lacked the state to compare it with.
    pub(crate) is_unjudged: bool,
    /// Set if a wrong state was judged early.
    pub(crate) is_hasty: bool,
    /// Number of waits of the scenario before the failure of an assertion that did not wait for the end of the faults.
    pub(crate) void_at: Option<usize>,
    /// The wait from which the scenario waited for the end of the faults, in order to evaluate a failed assertion
    /// again.
    pub(crate) patient_from: Option<usize>,
    /// Descriptions of values that were assigned to objects in a different order from the reference.
    pub(crate) permuted: Vec<String>,
    /// Resources and paths of the fields that differed from the reference in the last comparison.
    pub(crate) unlike: BTreeSet<(String, String)>,
    /// The differences in the last comparison, if all of them may be counts of failures.
    pub(crate) failure_counts: Vec<Count>,
    /// Number of steps at which the scenario had settled before the step with a wrong state, if the run ended there.
    pub(crate) wrong_step: Option<usize>,
    /// Set if the scenario took all of its steps.
    pub(crate) is_complete: bool,
    /// Time of the first fault since the start of the run.
    pub(crate) faults_begin: Option<Duration>,
    /// Time at which the last fault ended.
    pub(crate) faults_end: Option<Duration>,
    /// Fields that returned to an earlier value.
    pub(crate) returned: Returned,
    /// Times of day of the server at the start and at the end of the run.
    pub(crate) times: [Timestamp; 2],
    pub(crate) created: Uids,
    pub(crate) deleted: Uids,
    pub(crate) messages: u64,
    /// The clients that can be crashed.
    pub(crate) controllers: Vec<Arc<str>>,
    /// Writes of the test itself.
    pub(crate) doings: Vec<Doing>,
    /// Notes for the author: places where the scenario tests less than it appears to. Only in references.
    pub(crate) notes: Vec<String>,
    /// Places at which the scenario starts controllers that cannot be restarted.
    pub(crate) fixed: Vec<String>,
    /// Time from the last fault to the correct end state, if it exceeded `within`.
    pub(crate) late: Option<Duration>,
    /// Description of the first step of the test that began during a fault.
    pub(crate) went_on: Option<String>,
    /// Number of times each controller ended by itself and was restarted.
    pub(crate) ended: BTreeMap<Arc<str>, u32>,
    /// Output of controllers that are processes, oldest line first.
    #[cfg_attr(
        not(all(feature = "processes", unix)),
        expect(dead_code, reason = "only processes write lines")
    )]
    pub(crate) output: Vec<Wrote>,
    /// Digest of all bytes that were sent, if the configuration requires it.
    pub(crate) digest: u64,
    /// Processor time of the run.
    pub(crate) took: Duration,
    /// Bodies and tracing output, if the run was made for the report.
    pub(crate) recorded: Option<Recorded>,
}

impl Outcome {
    /// Returns the end state after all timers have fired, if the run has waited for them.
    pub(crate) fn at_rest(&self) -> &EndState {
        self.rested.as_ref().unwrap_or(&self.end)
    }

    /// Returns the time of the next change of the test after a moment, if the test does not wait for the cluster before
    /// this change but advances the clock.
    pub(crate) fn next_change(&self, after: Duration) -> Option<Duration> {
        let next = self.doings.iter().map(|it| it.at).filter(|at| *at > after).min()?;
        let waits = self.settled_times.iter().any(|it| (after..=next).contains(it));
        (!waits).then_some(next)
    }

    /// Collects the differences of the end states of two runs without faults, and the generated names of objects that
    /// do not exist at the end.
    pub(crate) fn mask(&self, other: &Self, ignored: &[String], began: Timestamp) -> Mask {
        let mut mask = self.end.mask(&other.end, ignored, began);
        for [one, others] in [[&self.created, &other.created], [&self.deleted, &other.deleted]] {
            // A key with `*` has a name that the server generates.
            let only = |one: &'_ Uids, others: &Uids| {
                let keys = one
                    .keys()
                    .filter(|key| !key.contains('*') && !others.contains_key(*key));
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
