//! `Asides`: observations in runs that do not count as failures.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::explore::outcomes::{Outcome, Violation};
use crate::explore::plans::{Plan, given};
use crate::explore::runs::Config;

/// Observations in runs that do not count as failures.
#[derive(Debug, Default)]
pub(crate) struct Asides {
    /// Delay of the first slow end state, and the plan of its run.
    late: Option<(Duration, Plan)>,
    /// Number of times each controller ended by itself in a way and was restarted, over all runs.
    ended: BTreeMap<Arc<str>, BTreeMap<String, u32>>,
    /// Descriptions of values that were assigned to objects in a different order from the reference, and the first plan
    /// with such values.
    permuted: Option<(Vec<String>, Plan)>,
    /// Description of the first failure that depends on the timing of changes.
    pub(crate) first_come: Option<String>,
    /// Failures that could not be confirmed in time, oldest first.
    pub(crate) unconfirmed: Vec<(Plan, Violation)>,
    /// Number of failing plans that were not examined, because they failed in the same way as others.
    pub(crate) repeated: u64,
    /// Resources and paths of fields that are no longer compared, because they differed in only some runs of the same
    /// plan.
    pub(crate) unsteady: BTreeSet<(String, String)>,
}

impl Asides {
    pub(crate) fn take(&mut self, plan: &Plan, outcome: &Outcome) {
        if let (Some(late), None) = (outcome.late, &self.late) {
            self.late = Some((late, plan.clone()));
        }
        if let (None, false) = (&self.permuted, outcome.permuted.is_empty()) {
            self.permuted = Some((outcome.permuted.clone(), plan.clone()));
        }
        for ((client, how), times) in &outcome.ended {
            let ends = self.ended.entry(Arc::clone(client)).or_default();
            *ends.entry(how.clone()).or_default() += times;
        }
    }

    /// Describes the observations.
    pub(crate) fn notes(&self, config: &Config) -> Vec<String> {
        let late = self.late.iter().map(|(late, plan)| {
            format!(
                "the state only became correct {late:?} after the last fault, which is slow but does not fail the \
                 run; use `.within(…)` if more than {:?} is expected (to replay: EXPLORE_REPLAY='{plan}')",
                config.within
            )
        });
        let ended = self.ended.iter().map(|(client, ends)| {
            let times: u32 = ends.values().sum();
            let ends = ends.iter().map(|(how, times)| format!("{how} ({times})"));
            format!(
                "{} ended by itself and was restarted {times} times over all runs: {}",
                given(client),
                ends.collect::<Vec<_>>().join("; ")
            )
        });
        let permuted = self.permuted.iter().map(|(values, plan)| {
            format!(
                "values are assigned in the order of arrival, which differs in some runs: {} (to replay: \
                 EXPLORE_REPLAY='{plan}')",
                values.join("; ")
            )
        });
        let first_come = self.first_come.iter().cloned();
        let repeated = match self.repeated {
            0 => None,
            1 => Some("another plan fails with the same message".to_owned()),
            count => Some(format!("{count} more plans fail with the same message")),
        };
        let mut topics = BTreeSet::new();
        let different = self.unconfirmed.iter().filter(|it| topics.insert(it.1.topic()));
        let examples = different.map(|(plan, violation)| format!("{violation} (to replay: EXPLORE_REPLAY='{plan}')"));
        let examples: Vec<String> = examples.collect();
        let unconfirmed = (!examples.is_empty()).then(|| {
            let count = match self.unconfirmed.len() {
                1 => "a plan that failed once was".to_owned(),
                more => format!("{more} plans that failed once were"),
            };
            let examples = examples.join("\nalso: ");
            format!("{count} not repeated, because time ran out, for example: {examples}")
        });
        let unsteady = (!self.unsteady.is_empty()).then(|| {
            let fields = self
                .unsteady
                .iter()
                .map(|(resource, path)| format!("{path} of {resource}"));
            format!(
                "fields that differed in only some runs of a plan are no longer compared: {}",
                fields.collect::<Vec<_>>().join(", ")
            )
        });
        late.chain(unsteady)
            .chain(ended)
            .chain(permuted)
            .chain(first_come)
            .chain(repeated)
            .chain(unconfirmed)
            .collect()
    }
}
