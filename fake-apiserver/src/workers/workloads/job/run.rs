//! Maintains the parallelism of a Job, and chooses the Pods to start next.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::track::{Counted, ended_at, index_of};
use super::{COMPONENT, INDEX, INDEX_FAILURES, Run, TRACKED, indexes};
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::plan::Plan;
use crate::workers::workloads::pods::{first_to_go, from_template, phase, plus};
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
        if has > wanted {
            let surplus = usize::try_from(has - wanted).unwrap_or(0);
            for pod in first_to_go(active, |_| 0, surplus) {
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
            for index in self
                .free_indexes(counted, waits_for_end)
                .take(usize::try_from(missing).unwrap_or(0))
            {
                self.create(Some(index), plan);
            }
        } else {
            for _ in 0..missing {
                self.create(None, plan);
            }
        }
    }

    /// Returns the end of the back-off after the last failures. Only failures since the last success are counted. A Job
    /// with `backoffLimitPerIndex` has no back-off.
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
        let times = u32::try_from(failures.len()).unwrap_or(u32::MAX).checked_sub(1)?;
        let wait = BACK_OFF_FIRST
            .saturating_mul(2_i64.saturating_pow(times))
            .min(BACK_OFF_MOST);
        failures.into_iter().max().map(|at| plus(at, wait))
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
        if pod["spec"]["hostname"].as_str().is_none_or(str::is_empty) {
            pod["spec"]["hostname"] = format!("{job}-{index}").into();
        }
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
