//! The status of a Deployment: counts, and the conditions Available, Progressing and ReplicaFailure.

use std::sync::Arc;

use super::{Rollout, counted, replicas};
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::plan::Plan;
use crate::workers::workloads::pods::{generation, plus, status, time};
use crate::workers::workloads::resource::Resource;
use crate::workers::workloads::sees::{conditions, drop_condition, find_condition, new_condition, put_condition};

/// Number of seconds from which a deadline is treated as unlimited.
const NO_DEADLINE: i64 = i32::MAX as i64;

/// The reason of the condition Progressing after a completed rollout.
const DONE: &str = "NewReplicaSetAvailable";
/// The reason of the condition Progressing for a rollout that takes too long.
const TOO_LATE: &str = "ProgressDeadlineExceeded";

/// The reason of the condition Progressing, and of Events, if a ReplicaSet cannot be created.
pub(super) const CREATE_ERROR: &str = "ReplicaSetCreateError";

/// Returns the message for a ReplicaSet that cannot be created.
pub(super) fn create_error(set: &str, why: &str) -> String {
    format!("Failed to create new replica set \"{set}\": {why}")
}

/// Totals over the ReplicaSets of a Deployment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    replicas: i64,
    updated: i64,
    ready: i64,
    available: i64,
    terminating: i64,
}

impl Counts {
    fn of(deployment: &Object) -> Self {
        let number = |field| Cursor::root(status(deployment)).integer(field).unwrap_or(0);
        Self {
            replicas: number("replicas"),
            updated: number("updatedReplicas"),
            ready: number("readyReplicas"),
            available: number("availableReplicas"),
            terminating: number("terminatingReplicas"),
        }
    }
}

impl Rollout<'_> {
    pub(super) fn next_counts(&self) -> Counts {
        let sum = |field| self.sets.iter().map(|set| counted(set, field)).sum::<i64>();
        Counts {
            replicas: sum("replicas"),
            updated: self.new.map_or(0, |new| counted(new, "replicas")),
            ready: sum("readyReplicas"),
            available: sum("availableReplicas"),
            terminating: sum("terminatingReplicas"),
        }
    }

    /// Returns `true` if the rollout is complete.
    pub(super) fn is_complete(&self, counts: &Counts) -> bool {
        let wanted = replicas(self.deployment);
        counts.updated == wanted && counts.replicas == wanted && counts.available == wanted
    }

    fn is_progress(&self, counts: &Counts) -> bool {
        let before = Counts::of(self.deployment);
        counts.updated > before.updated
            || counts.replicas - counts.updated < before.replicas - before.updated
            || counts.ready > before.ready
            || counts.available > before.available
    }

    fn deadline(&self) -> Option<i64> {
        Cursor::root(self.deployment)
            .integer("spec.progressDeadlineSeconds")
            .filter(|it| *it < NO_DEADLINE)
    }

    fn progressing(&self) -> Option<&Map> {
        find_condition(status(self.deployment), "Progressing")
    }

    fn condition(&self, kind: &str, status: &str, reason: &str, message: &str) -> Map {
        let now = self.sees.stamp();
        let mut condition = new_condition(kind, status, reason, message, &now);
        condition.insert("lastUpdateTime".into(), now.into());
        condition
    }

    /// Returns the conditions after replacing one of them.
    fn with(&self, condition: Map) -> Vec<Value> {
        let mut list = conditions(status(self.deployment));
        put_condition(&mut list, condition);
        list
    }

    /// Returns the conditions after the new ReplicaSet was created.
    pub(super) fn conditions_created(&self, set: &str) -> Option<Vec<Value>> {
        self.deadline()?;
        let message = format!("Created new replica set \"{set}\"");
        Some(self.with(self.condition("Progressing", "True", "NewReplicaSetCreated", &message)))
    }

    /// Returns the conditions after the server has refused to create the new ReplicaSet.
    pub(super) fn conditions_refused(&self, set: &str, why: &str) -> Option<Vec<Value>> {
        self.deadline()?;
        Some(self.with(self.condition("Progressing", "False", CREATE_ERROR, &create_error(set, why))))
    }

    /// Returns the conditions after an existing ReplicaSet of the template was found.
    pub(super) fn conditions_found(&self, set: &Object) -> Option<Vec<Value>> {
        if self.deadline().is_none() || self.progressing().is_some() {
            return None;
        }
        let message = format!("Found new replica set \"{}\"", set.name());
        Some(self.with(self.condition("Progressing", "True", "FoundNewReplicaSet", &message)))
    }

    /// Records that the rollout was paused or resumed; returns `true` if a condition has changed.
    pub(super) fn note_pause(&self, plan: &mut Plan) -> bool {
        let reason = self.progressing().map_or("", |it| Cursor::root(it).text("reason"));
        if self.deadline().is_none() || reason == TOO_LATE {
            return false;
        }
        let is_paused = Cursor::root(self.deployment).flag("spec.paused") == Some(true);
        let (reason, message) = match (is_paused, reason == "DeploymentPaused") {
            (true, false) => ("DeploymentPaused", "Deployment is paused"),
            (false, true) => ("DeploymentResumed", "Deployment is resumed"),
            (true, true) | (false, false) => return false,
        };
        let mut next = status(self.deployment).clone();
        let list = self.with(self.condition("Progressing", "Unknown", reason, message));
        next.insert("conditions".into(), list.into());
        plan.status(Resource::Deployment, self.deployment, next);
        true
    }

    /// Returns the counts and the condition Available.
    fn base_status(&self, counts: &Counts) -> (Map, Vec<Value>) {
        let deployment = self.deployment;
        let mut next = status(deployment).clone();
        let asked: i64 = self.sets.iter().map(|it| replicas(it)).sum();
        let unavailable = (asked - counts.available).max(0);
        for (field, number) in [
            ("replicas", counts.replicas),
            ("updatedReplicas", counts.updated),
            ("readyReplicas", counts.ready),
            ("availableReplicas", counts.available),
            ("unavailableReplicas", unavailable),
        ] {
            match number {
                0 => next.remove(field),
                _ => next.insert(field.into(), number.into()),
            };
        }
        next.insert("terminatingReplicas".into(), counts.terminating.into());
        next.insert("observedGeneration".into(), generation(deployment).into());
        let mut list = conditions(&next);
        let condition = if counts.available >= replicas(deployment) - self.max_unavailable() {
            let message = "Deployment has minimum availability.";
            self.condition("Available", "True", "MinimumReplicasAvailable", message)
        } else {
            let message = "Deployment does not have minimum availability.";
            self.condition("Available", "False", "MinimumReplicasUnavailable", message)
        };
        put_condition(&mut list, condition);
        (next, list)
    }

    /// Writes the status without updating the condition Progressing.
    pub(super) fn write_plain_status(&self, plan: &mut Plan) {
        let (mut next, list) = self.base_status(&self.next_counts());
        next.insert("conditions".into(), list.into());
        plan.status(Resource::Deployment, self.deployment, next);
    }

    /// Writes the status with the progress of the rollout.
    pub(super) fn write_rollout_status(&self, plan: &mut Plan) {
        let counts = self.next_counts();
        let (mut next, mut list) = self.base_status(&counts);
        let was_done = self
            .progressing()
            .is_some_and(|it| Cursor::root(it).text("reason") == DONE);
        match self.deadline() {
            None => drop_condition(&mut list, "Progressing"),
            Some(_) if counts.replicas == counts.updated && was_done => {}
            Some(deadline) => self.put_progress(&counts, deadline, &mut list),
        }
        let failing = |set: &Arc<Object>| find_condition(status(set), "ReplicaFailure").cloned();
        let failure = self
            .new
            .and_then(failing)
            .or_else(|| self.old().into_iter().find_map(failing));
        match failure {
            Some(failure) => {
                // The times are copied as well (Go's `ReplicaSetToDeploymentCondition`).
                let [status, reason, message, at] = ["status", "reason", "message", "lastTransitionTime"]
                    .map(|field| Cursor::root(&failure).text(field));
                let mut condition = new_condition("ReplicaFailure", status, reason, message, at);
                condition.insert("lastUpdateTime".into(), at.into());
                put_condition(&mut list, condition);
            }
            None => drop_condition(&mut list, "ReplicaFailure"),
        }
        next.insert("conditions".into(), list.into());
        self.ask_again(&counts, &next, plan);
        plan.status(Resource::Deployment, self.deployment, next);
    }

    fn put_progress(&self, counts: &Counts, deadline: i64, list: &mut Vec<Value>) {
        let subject = match self.new {
            Some(set) => format!("ReplicaSet \"{}\"", set.name()),
            None => format!("Deployment \"{}\"", self.deployment.name()),
        };
        if self.is_complete(counts) {
            let message = format!("{subject} has successfully progressed.");
            put_condition(list, self.condition("Progressing", "True", DONE, &message));
        } else if self.is_progress(counts) {
            let message = format!("{subject} is progressing.");
            let mut condition = self.condition("Progressing", "True", "ReplicaSetUpdated", &message);
            if let Some(current) = self.progressing()
                && Cursor::root(current).text("status") == "True"
            {
                condition.insert(
                    "lastTransitionTime".into(),
                    Cursor::root(current).text("lastTransitionTime").into(),
                );
            }
            // Any progress resets the time from which the deadline is counted.
            drop_condition(list, "Progressing");
            put_condition(list, condition);
        } else if self.is_late(deadline) {
            let message = format!("{subject} has timed out progressing.");
            put_condition(list, self.condition("Progressing", "False", TOO_LATE, &message));
        }
    }

    fn is_late(&self, deadline: i64) -> bool {
        let Some(condition) = self.progressing() else {
            return false;
        };
        match Cursor::root(condition).text("reason") {
            DONE => false,
            TOO_LATE => true,
            _ => time(Cursor::root(condition).text("lastUpdateTime"))
                .is_some_and(|since| plus(since, deadline) < self.sees.now),
        }
    }

    /// Schedules a sync for one second after the progress deadline.
    fn ask_again(&self, counts: &Counts, next: &Map, plan: &mut Plan) {
        let (Some(deadline), Some(condition)) = (self.deadline(), find_condition(next, "Progressing")) else {
            return;
        };
        if self.is_complete(counts) || matches!(Cursor::root(condition).text("reason"), DONE | TOO_LATE) {
            return;
        }
        if let Some(since) = time(Cursor::root(condition).text("lastUpdateTime")) {
            plan.look_again(plus(since, deadline.saturating_add(1)));
        }
    }
}
