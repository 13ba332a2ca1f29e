//! Syncs a Job: counts ended Pods, then finishes or continues the Job.

use std::sync::Arc;

use jiff::Timestamp;

use super::end::Ending;
use super::run::Managed;
use super::{COMPONENT, Run, track};
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::plan::Plan;
use crate::workers::workloads::pods::{self, plus, status, time};
use crate::workers::workloads::resource::Resource;
use crate::workers::workloads::sees::{conditions, find_condition, new_condition};

impl Run<'_> {
    pub(super) fn work(&self, plan: &mut Plan) {
        let mut next = status(self.job).clone();
        if !self.is_suspended() {
            next.entry("startTime").or_insert_with(|| self.sees.stamp().into());
        }
        let mut counted = self.count(&next);
        let ending = self.ending(&next, &counted);
        let active = self.active();
        let managed = match &ending {
            Some(_) => {
                for pod in &active {
                    self.delete_pod(pod, plan);
                }
                Managed {
                    active: 0,
                    deleted: active.clone(),
                }
            }
            None => self.manage(&counted, &active, plan),
        };
        if ending.is_none() {
            self.suspend_or_resume(&mut next, plan);
        }
        self.track(&mut next, &mut counted, ending.is_some());
        if ending.as_ref().is_some_and(Ending::is_success) {
            // After a success, the remaining Pods are not counted as failures.
            counted.pending.extend(active.iter().filter(|it| track::is_tracked(it)));
        }
        let stopping = self.terminating() + managed.deleted.len();
        self.write_counts(&mut next, &managed, stopping);
        let mut ended = Plan::default();
        if let Some(ending) = ending {
            let is_over = stopping == 0 && counted.pending.is_empty();
            self.put_ending(&mut next, &ending, is_over, &counted, &mut ended);
        }
        // Created and deleted Pods are included in the status. If one of these requests is refused, the status is
        // written without them.
        plan.status(Resource::Job, self.job, next);
        plan.writes.append(&mut ended.writes);
        for pod in &counted.pending {
            track::release(pod, plan);
        }
        self.watch_deadline(plan);
    }

    fn write_counts(&self, next: &mut Map, managed: &Managed<'_>, terminating: usize) {
        let of = |pods: &[&Arc<Object>]| pods.iter().filter(|it| pods::is_ready(it)).count();
        match managed.active {
            0 => next.remove("active"),
            count => next.insert("active".into(), count.into()),
        };
        let ready = of(&self.active()) - of(&managed.deleted);
        next.insert("ready".into(), ready.into());
        next.insert("terminating".into(), terminating.into());
    }

    /// Deletes a Pod without counting it as a success or failure (Go's `deleteJobPods`).
    pub(super) fn delete_uncounted(&self, pod: &Object, plan: &mut Plan) {
        if track::is_tracked(pod) {
            track::release(pod, plan);
        }
        self.delete_pod(pod, plan);
    }

    /// Deletes a Pod, which remains until it has been counted (Go's `deleteActivePods`).
    pub(super) fn delete_pod(&self, pod: &Object, plan: &mut Plan) {
        let told = crate::workers::workloads::replica_set::told_of_deletion(Resource::Job, self.job, COMPONENT);
        plan.delete_and_tell(Resource::Pod, pod, Some(told));
    }

    /// Schedules a sync for the deadline of the Job.
    pub(super) fn watch_deadline(&self, plan: &mut Plan) {
        if let Some(at) = self.deadline().filter(|at| *at > self.sees.now) {
            plan.look_again(at);
        }
    }

    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let limit = Cursor::root(self.spec()).integer("activeDeadlineSeconds")?;
        Some(plus(time(Cursor::root(self.job).text("status.startTime"))?, limit))
    }

    /// Suspends or resumes the Job.
    fn suspend_or_resume(&self, next: &mut Map, plan: &mut Plan) {
        let suspended = find_condition(next, "Suspended").map(|it| Cursor::root(it).text("status") == "True");
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
            (false, _) => {}
        }
    }

    pub(super) fn put_condition(&self, next: &mut Map, kind: &str, word: &str, reason: &str, message: &str) {
        let now = self.sees.stamp();
        let mut list = conditions(next);
        list.retain(|it| it.get("type").and_then(Value::as_str) != Some(kind));
        let mut condition = new_condition(kind, word, reason, message, &now);
        condition.insert("lastProbeTime".into(), now.into());
        list.push(Value::Object(condition));
        next.insert("conditions".into(), list.into());
    }
}
