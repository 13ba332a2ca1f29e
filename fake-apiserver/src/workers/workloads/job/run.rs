//! Maintains the parallelism of a Job, and chooses the Pods to start next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::track::{Counted, ended_at, index_of};
use super::{COMPONENT, INDEX, INDEX_FAILURES, Run, TRACKED, indexes};
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::plan::Plan;
use crate::workers::workloads::pods::{from_template, goes_before_in_job, phase, plus};
use crate::workers::workloads::replica_set::told_of_creation;
use crate::workers::workloads::resource::Resource;

/// Maximum number of Pods that one sync of a Job creates; the next sync creates more.
const BURST: i64 = 500;

/// Delay after the first failure, in seconds; each further failure doubles it.
const BACK_OFF_FIRST: i64 = 10;
/// Maximum delay, in seconds.
const BACK_OFF_MOST: i64 = 600;

impl<'a> Run<'a> {
    /// Creates or deletes Pods, so that the desired number is active.
    pub(super) fn manage(&self, counted: &Counted<'_>, active: &[&Arc<Object>], plan: &mut Plan) {
        let parallelism = Cursor::root(self.spec()).integer("parallelism").unwrap_or(1);
        let has = i64::try_from(active.len()).unwrap_or(i64::MAX);
        let wanted = match self.completions() {
            None if counted.succeeded > 0 => has,
            None => parallelism,
            Some(completions) => (completions - counted.succeeded).clamp(0, parallelism.max(0)),
        };
        let surplus = usize::try_from(has - wanted).unwrap_or(0);
        let removed = self.surplus(active, surplus);
        if !removed.is_empty() {
            for pod in removed {
                self.delete_uncounted(pod, plan);
            }
            return;
        }
        // If only failed Pods are replaced, terminating Pods are still counted as active.
        let waits_for_end = Cursor::root(self.spec()).text("podReplacementPolicy") == "Failed";
        let stopping = if waits_for_end {
            i64::try_from(self.terminating()).unwrap_or(0)
        } else {
            0
        };
        let missing = (wanted - has - stopping).clamp(0, BURST);
        if missing == 0 {
            return;
        }
        if let Some(at) = self.back_off_ends(counted).filter(|at| *at > self.sees.now) {
            return plan.look_again(at);
        }
        if self.is_indexed() {
            let free = self.free_indexes(counted, waits_for_end);
            for index in free.take(usize::try_from(missing).unwrap_or(0)) {
                match self.index_back_off_ends(index).filter(|at| *at > self.sees.now) {
                    Some(at) => plan.look_again(at),
                    None => self.create(Some(index), plan),
                }
            }
        } else {
            for _ in 0..missing {
                self.create(None, plan);
            }
        }
    }

    /// Returns the active Pods to delete, at least `least` ones. Pods of an Indexed Job whose index is not below the
    /// completions, or belongs to another Pod, are always deleted, before others (Go's `activePodsForRemoval`).
    fn surplus<'b>(&self, active: &[&'b Arc<Object>], least: usize) -> Vec<&'b Arc<Object>> {
        let (mut removed, mut left) = (Vec::new(), Vec::new());
        if self.is_indexed() {
            let mut by_index: BTreeMap<i64, Vec<&'b Arc<Object>>> = BTreeMap::new();
            for pod in active {
                match index_of(pod).filter(|it| self.is_valid(*it)) {
                    Some(index) => by_index.entry(index).or_default().push(*pod),
                    None => removed.push(*pod),
                }
            }
            for pods in by_index.into_values() {
                // The Pod that would be deleted last stays.
                let mut sorted = pods;
                sorted.sort_by(|one, other| goes_before_in_job(one, other));
                left.extend(sorted.pop());
                removed.extend(sorted);
            }
        } else {
            left.extend(active);
        }
        let more = least.saturating_sub(removed.len());
        left.sort_by(|one, other| goes_before_in_job(one, other));
        removed.extend(left.into_iter().take(more));
        removed
    }

    /// Returns the end of the back-off after the last failures. Only failures since the last success are counted. In a
    /// Job with `backoffLimitPerIndex`, each index has its own back-off.
    fn back_off_ends(&self, counted: &Counted<'_>) -> Option<Timestamp> {
        if Cursor::root(self.spec()).integer("backoffLimitPerIndex").is_some() || counted.failed == 0 {
            return None;
        }
        let ended = |what: &str| {
            let pods = self.pods.iter().filter(|pod| phase(pod) == what);
            pods.filter_map(|pod| ended_at(pod)).collect::<Vec<_>>()
        };
        let last_success = ended("Succeeded").into_iter().max();
        let failures: Vec<_> = ended("Failed")
            .into_iter()
            .filter(|at| last_success.is_none_or(|it| *at > it))
            .collect();
        let count = failures.len();
        failures.into_iter().max().map(|at| back_off_end(at, count))
    }

    /// Returns the end of the back-off after the last failure of an index, if the Job has a limit for each index.
    fn index_back_off_ends(&self, index: i64) -> Option<Timestamp> {
        Cursor::root(self.spec()).integer("backoffLimitPerIndex")?;
        let failed = self
            .pods
            .iter()
            .filter(|pod| index_of(pod) == Some(index) && phase(pod) == "Failed");
        let ended = failed.filter_map(|pod| Some((ended_at(pod)?, indexes::failures(pod) + 1)));
        let (at, count) = ended.max()?;
        Some(back_off_end(at, usize::try_from(count).unwrap_or(0)))
    }

    /// Returns the indexes that need a new Pod, lowest first: they have neither succeeded nor failed, and have no
    /// active Pod.
    fn free_indexes(&self, counted: &Counted<'_>, waits_for_end: bool) -> impl Iterator<Item = i64> {
        let busy = |pod: &&&Arc<Object>| {
            super::pods::is_active(pod) || (waits_for_end && pod.is_terminating() && !super::pods::is_finished(pod))
        };
        let mut taken: BTreeSet<i64> = self.pods.iter().filter(busy).filter_map(|pod| index_of(pod)).collect();
        taken.extend(&counted.completed);
        taken.extend(&counted.failed_indexes);
        (0..self.completions().unwrap_or(0)).filter(move |index| !taken.contains(index))
    }

    fn create(&self, index: Option<i64>, plan: &mut Plan) {
        let template = Cursor::root(self.spec()).map_or_empty("template");
        let mut pod = from_template(Resource::Job, self.job, template);
        let mut finalizers = pod["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.push(TRACKED.into());
        pod["metadata"]["finalizers"] = finalizers.into();
        if let Some(index) = index {
            self.put_index(&mut pod, index);
        }
        let told = told_of_creation(Resource::Job, self.job, COMPONENT);
        plan.create_and_tell(Resource::Pod, pod, Some(told));
    }

    /// Sets the completion index of a Pod in its annotation, its label, an environment variable and its host name.
    fn put_index(&self, pod: &mut Value, index: i64) {
        let job = self.job.name();
        pod["metadata"]["annotations"][INDEX] = index.to_string().into();
        pod["metadata"]["labels"][INDEX] = index.to_string().into();
        pod["metadata"]["generateName"] = format!("{job}-{index}-").into();
        if Cursor::root(self.spec()).integer("backoffLimitPerIndex").is_some() {
            let failed = self
                .pods
                .iter()
                .filter(|pod| index_of(pod) == Some(index) && phase(pod) == "Failed");
            let failures = failed.map(|pod| indexes::failures(pod) + 1).max().unwrap_or(0);
            pod["metadata"]["annotations"][INDEX_FAILURES] = failures.to_string().into();
        }
        pod["spec"]["hostname"] = format!("{job}-{index}").into();
        let field = format!("metadata.labels['{INDEX}']");
        let variable = json!({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": field}}});
        for list in ["initContainers", "containers"] {
            let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                let mut env = container["env"].as_array().cloned().unwrap_or_default();
                if env.iter().any(|it| it["name"] == "JOB_COMPLETION_INDEX") {
                    continue;
                }
                env.push(variable.clone());
                container["env"] = env.into();
            }
        }
    }
}

/// Returns the end of the back-off after this number of failures, the last of which was at `at`.
fn back_off_end(at: Timestamp, failures: usize) -> Timestamp {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let wait = BACK_OFF_FIRST.saturating_mul(2_i64.saturating_pow(doublings));
    plus(at, wait.min(BACK_OFF_MOST))
}
