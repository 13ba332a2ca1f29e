//! Maintains the parallelism of a Job, and chooses the Pods to start next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::track::{Counted, ended_at, index_of};
use super::{COMPONENT, INDEX, INDEX_FAILURES, INDEX_IGNORED, Run, indexes};
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::back_off::job_delay_end;
use crate::workers::workloads::plan::Plan;
use crate::workers::workloads::pods::{from_template, goes_before_in_job};
use crate::workers::workloads::replica_set::told_of_creation;
use crate::workers::workloads::resource::Resource;
use crate::workers::workloads::sees::JOB_TRACKING;

/// Maximum number of Pods that one sync of a Job creates or deletes; the next sync continues.
const BURST: usize = 500;
/// Maximum length of a generated name without its random suffix (Go's `MaxGeneratedNameLength`).
const NAME_BASE_MAX: usize = 58;

/// The result of managing the Pods of a Job.
pub(super) struct Managed<'a> {
    /// Number of active Pods after the planned creations and deletions.
    pub(super) active: i64,
    /// Pods that are deleted.
    pub(super) deleted: Vec<&'a Arc<Object>>,
}

impl<'a> Run<'a> {
    /// Creates or deletes Pods, so that the desired number is active (Go's `manageJob`).
    pub(super) fn manage(&self, counted: &Counted<'_>, active: &[&'a Arc<Object>], plan: &mut Plan) -> Managed<'a> {
        let parallelism = Cursor::root(self.spec()).integer("parallelism").unwrap_or(1);
        let has = i64::try_from(active.len()).unwrap_or(i64::MAX);
        let wanted = match self.completions() {
            _ if self.is_suspended() => 0,
            None if counted.succeeded > 0 => has,
            None => parallelism,
            Some(completions) => (completions - counted.succeeded).clamp(0, parallelism.max(0)),
        };
        let surplus = usize::try_from(has - wanted).unwrap_or(0);
        let mut deleted = self.surplus(active, surplus);
        if !self.is_suspended() {
            deleted.truncate(BURST);
        }
        for pod in &deleted {
            self.delete_uncounted(pod, plan);
        }
        let left = has - i64::try_from(deleted.len()).unwrap_or(0);
        // If only failed Pods are replaced, terminating Pods are still counted as active.
        let waits_for_end = Cursor::root(self.spec()).text("podReplacementPolicy") == "Failed";
        let stopping = if waits_for_end {
            i64::try_from(self.terminating()).unwrap_or(0)
        } else {
            0
        };
        let missing = usize::try_from(wanted - has - stopping).unwrap_or(0).min(BURST);
        if self.is_suspended() || !deleted.is_empty() || missing == 0 {
            return Managed { active: left, deleted };
        }
        let created = self.start(counted, missing, waits_for_end, plan);
        // During a backoff, no Pod is reported as active, as in Kubernetes.
        let active = created.map_or(0, |it| has + it);
        Managed { active, deleted }
    }

    /// Creates up to `missing` Pods. Returns their number; `None` if all of them must wait until a backoff ends.
    fn start(&self, counted: &Counted<'_>, missing: usize, waits_for_end: bool, plan: &mut Plan) -> Option<i64> {
        let has_own_limits = self.limit_per_index().is_some();
        if let Some(at) = self.back_off.filter(|at| *at > self.sees.now && !has_own_limits) {
            plan.look_again(at);
            return None;
        }
        let mut created = 0_i64;
        let mut waits = false;
        if self.is_indexed() {
            for index in self.free_indexes(counted, waits_for_end).take(missing) {
                match index_back_off_end(counted, index).filter(|at| *at > self.sees.now) {
                    Some(at) => {
                        waits = true;
                        plan.look_again(at);
                    }
                    None => {
                        self.create(Some(index), counted, plan);
                        created += 1;
                    }
                }
            }
        } else {
            for _ in 0..missing {
                self.create(None, counted, plan);
                created += 1;
            }
        }
        if created == 0 && waits {
            return None;
        }
        // After a refusal, the Pods do not exist.
        Some(if self.sees.failure.is_some() { 0 } else { created })
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

    fn create(&self, index: Option<i64>, counted: &Counted<'_>, plan: &mut Plan) {
        let template = Cursor::root(self.spec()).map_or_empty("template");
        let mut pod = from_template(Resource::Job, self.job, template);
        let mut finalizers = pod["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if !finalizers.iter().any(|it| *it == JOB_TRACKING) {
            finalizers.push(JOB_TRACKING.into());
        }
        pod["metadata"]["finalizers"] = finalizers.into();
        if let Some(index) = index {
            self.put_index(&mut pod, index, counted.last_failed.get(&index).copied());
        }
        let told = told_of_creation(Resource::Job, self.job, COMPONENT);
        plan.create_and_tell(Resource::Pod, pod, Some(told));
    }

    /// Sets the completion index of a Pod in its annotation, its label, an environment variable and its host name.
    fn put_index(&self, pod: &mut Value, index: i64, replaced: Option<&Arc<Object>>) {
        let job = self.job.name();
        pod["metadata"]["annotations"][INDEX] = index.to_string().into();
        pod["metadata"]["labels"][INDEX] = index.to_string().into();
        pod["metadata"]["generateName"] = name_with_index(job, index).into();
        if self.limit_per_index().is_some() {
            let (failures, ignored) = match replaced {
                Some(pod) => {
                    let is_ignored = i64::from(self.is_ignored(pod));
                    let ignored = indexes::ignored_failures(pod) + is_ignored;
                    (indexes::failures(pod) + 1 - is_ignored, ignored)
                }
                None => (0, 0),
            };
            pod["metadata"]["annotations"][INDEX_FAILURES] = failures.to_string().into();
            if ignored > 0 {
                pod["metadata"]["annotations"][INDEX_IGNORED] = ignored.to_string().into();
            }
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

/// Returns the end of the backoff after the last failure of an index, if the Job has a limit for each index.
fn index_back_off_end(counted: &Counted<'_>, index: i64) -> Option<Timestamp> {
    let pod = counted.last_failed.get(&index)?;
    let failures = indexes::all_failures(pod) + 1;
    Some(job_delay_end(ended_at(pod), usize::try_from(failures).unwrap_or(0)))
}

/// Returns the base of the generated names of Pods with an index, with a shortened name of the Job if necessary.
fn name_with_index(job: &str, index: i64) -> String {
    let suffix = format!("-{index}-");
    let most = NAME_BASE_MAX.saturating_sub(suffix.len());
    format!("{}{suffix}", &job[..job.len().min(most)])
}
