//! Jobs: Pods until so many have succeeded, or too many failed.

mod end;
mod indexes;
mod run;
mod track;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::plan::{Plan, Write};
use super::pods::{self, is_finished, phase, plus, spec, status, time};
use super::resource::{Resource, Target};
use super::sees::{Sees, conditions, find_condition, selector_of};
use crate::api::object::Object;
use crate::api::options::PropagationPolicy;
use crate::registry::kinds::view::{JsonMap, flag, integer, text};

const COMPONENT: &str = "job-controller";
/// The finalizer by which a Pod stays until it has been counted.
const TRACKED: &str = "batch.kubernetes.io/job-tracking";
/// The annotation and label with a Pod's index.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How often Pods of an index failed before this one.
const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";

/// A Job with its Pods.
struct Run<'a> {
    job: &'a Object,
    sees: &'a Sees<'a>,
    pods: Vec<&'a Arc<Object>>,
}

/// What is to be done for a Job.
pub(crate) fn sync(job: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    if let Some(finished) = end::finished_at(job) {
        expire(job, finished, sees, &mut plan);
        release(job, sees, &mut plan);
        return plan;
    }
    let Some(selector) = selector_of(spec(job), "selector") else {
        return plan;
    };
    let pods = sees.claimed(Resource::Pod, (Resource::Job, job), &selector, &mut plan);
    let run = Run { job, sees, pods };
    if job.is_terminating() {
        release(job, sees, &mut plan);
        return plan;
    }
    run.work(&mut plan);
    plan
}

/// Deletes a Job a time after it finished.
fn expire(job: &Object, finished: Timestamp, sees: &Sees<'_>, plan: &mut Plan) {
    let Some(seconds) = integer(spec(job), "ttlSecondsAfterFinished").filter(|_| !job.is_terminating()) else {
        return;
    };
    let due = plus(finished, seconds);
    if due > sees.now {
        return plan.look_again(due);
    }
    plan.writes.push(Write::Delete {
        at: Target::of(Resource::Job, job),
        grace: None,
        propagation: Some(PropagationPolicy::Foreground),
        told: None,
    });
}

/// Lets go of the Pods of a Job that will not be counted any more.
fn release(job: &Object, sees: &Sees<'_>, plan: &mut Plan) {
    for pod in sees.cluster.owned_by(Resource::Pod, job.uid()) {
        if pod.finalizers().any(|it| it == TRACKED) {
            track::release(pod, plan);
        }
    }
}

impl<'a> Run<'a> {
    fn spec(&self) -> &'a JsonMap {
        spec(self.job)
    }

    fn is_suspended(&self) -> bool {
        flag(self.spec(), "suspend") == Some(true)
    }

    fn is_indexed(&self) -> bool {
        text(self.spec(), "completionMode") == "Indexed"
    }

    fn completions(&self) -> Option<i64> {
        integer(self.spec(), "completions")
    }

    /// The Pods that work.
    fn active(&self) -> Vec<&'a Arc<Object>> {
        self.pods.iter().copied().filter(|it| pods::is_active(it)).collect()
    }

    /// The Pods that have been told to stop and have not yet.
    fn terminating(&self) -> usize {
        self.pods
            .iter()
            .filter(|it| it.is_terminating() && !is_finished(it))
            .count()
    }

    /// Whether a Pod counts as failed: one that was deleted before it ended does, once it may not come back.
    fn has_failed(&self, pod: &Object) -> bool {
        if phase(pod) == "Failed" {
            return true;
        }
        let replaced_only_failed = text(self.spec(), "podReplacementPolicy") == "Failed";
        pod.is_terminating() && phase(pod) != "Succeeded" && !replaced_only_failed
    }

    /// One look: count what ended, then end the Job or go on with it.
    fn work(&self, plan: &mut Plan) {
        let mut next = status(self.job).clone();
        self.start_or_suspend(&mut next, plan);
        let counted = self.count(&mut next);
        let ending = self.ending(&next, &counted);
        let active = self.active();
        let mut active_left = active.len();
        match &ending {
            Some(_) => {
                for pod in &active {
                    self.delete_pod(pod, plan);
                }
                active_left = 0;
            }
            None if self.is_suspended() => {
                for pod in &active {
                    self.delete_pod(pod, plan);
                }
                active_left = 0;
            }
            None => self.manage(&counted, &active, plan),
        }
        let stopping = self.terminating() + active.len() - active_left;
        self.write_counts(&mut next, active_left, stopping);
        if let Some(ending) = ending {
            self.put_ending(
                &mut next,
                &ending,
                active_left + stopping == 0 && counted.pending.is_empty(),
                plan,
            );
        }
        // The status is written first, so that nothing is lost should the rest fail.
        let mut writes = std::mem::take(&mut plan.writes);
        plan.status(Resource::Job, self.job, next);
        plan.writes.append(&mut writes);
        for pod in &counted.pending {
            track::release(pod, plan);
        }
        self.watch_deadline(plan);
    }

    fn write_counts(&self, next: &mut JsonMap, active: usize, terminating: usize) {
        let ready = self.active().iter().filter(|it| pods::is_ready(it)).count();
        match active {
            0 => next.remove("active"),
            count => next.insert("active".into(), count.into()),
        };
        next.insert("ready".into(), if active == 0 { 0 } else { ready }.into());
        next.insert("terminating".into(), terminating.into());
    }

    fn delete_pod(&self, pod: &Object, plan: &mut Plan) {
        let told = super::replica_set::told_of_deletion(Resource::Job, self.job, COMPONENT);
        plan.delete_and_tell(Resource::Pod, pod, Some(told));
    }

    /// Looks again when the time of the whole Job is over.
    fn watch_deadline(&self, plan: &mut Plan) {
        if let Some(at) = self.deadline().filter(|at| *at > self.sees.now) {
            plan.look_again(at);
        }
    }

    fn deadline(&self) -> Option<Timestamp> {
        let limit = integer(self.spec(), "activeDeadlineSeconds")?;
        Some(plus(time(text(status(self.job), "startTime"))?, limit))
    }

    /// Begins the Job, stops it for a while, or takes it up again.
    fn start_or_suspend(&self, next: &mut JsonMap, plan: &mut Plan) {
        let suspended = find_condition(next, "Suspended").map(|it| text(it, "status") == "True");
        let about = (Resource::Job, self.job);
        match (self.is_suspended(), suspended) {
            (true, Some(true)) => {}
            (true, _) => {
                self.put_condition(next, "Suspended", "True", "JobSuspended", "Job suspended");
                next.remove("startTime");
                plan.note(about, COMPONENT, "Suspended", "Job suspended".to_owned());
            }
            (false, Some(true)) => {
                self.put_condition(next, "Suspended", "False", "JobResumed", "Job resumed");
                next.insert("startTime".into(), self.sees.stamp().into());
                plan.note(about, COMPONENT, "Resumed", "Job resumed".to_owned());
            }
            (false, _) => {
                next.entry("startTime").or_insert_with(|| self.sees.stamp().into());
            }
        }
    }

    fn put_condition(&self, next: &mut JsonMap, kind: &str, word: &str, reason: &str, message: &str) {
        let now = self.sees.stamp();
        let mut list = conditions(next);
        list.retain(|it| it.get("type").and_then(Value::as_str) != Some(kind));
        let mut condition = super::sees::new_condition(kind, word, reason, message, &now);
        condition.insert("lastProbeTime".into(), now.into());
        list.push(Value::Object(condition));
        next.insert("conditions".into(), list.into());
    }
}
