//! Stops a deleted Pod: stops its containers within the grace period, and then removes the Pod.

use std::time::Duration;

use super::container::{KILLED, ended};
use super::look::{Look, grace, later};
use crate::api::json::{Map, Value, json};
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::plan::{Plan, Write};
use crate::workers::workloads::pods::{is_finished, status};
use crate::workers::workloads::resource::{Resource, Target};

impl Look<'_> {
    /// Plans the next step of a terminating Pod.
    pub(super) fn stop(&mut self) -> Plan {
        let mut plan = Plan::default();
        let pod = self.pod;
        let grace = grace(pod);
        if grace == Some(0) && is_finished(pod) {
            // Only finalizers prevent the removal of the Pod.
            return plan;
        }
        let is_running = |it: &Map| Cursor::root(it).map("state.running").is_some();
        let runs = Cursor::root(pod).maps("status.containerStatuses").any(is_running);
        let now = self.now;
        if self.memory.stopping.is_none() {
            self.note_stopping();
            plan.writes.append(&mut self.notes);
        }
        let since = *self.memory.stopping.get_or_insert(now);
        let limit = Duration::from_secs(u64::try_from(grace.unwrap_or(0)).unwrap_or(0));
        let takes = self.script.stops_after.min(limit);
        let due = later(since, takes);
        if runs && due > now {
            plan.look_again(due);
            return plan;
        }
        if !is_finished(pod) {
            let code = if self.script.stops_after > limit { KILLED } else { 0 };
            plan.status(Resource::Pod, pod, self.stopped_status(code));
        }
        if grace != Some(0) {
            plan.writes.push(Write::Delete {
                at: Target::of(Resource::Pod, pod),
                grace: Some(0),
                propagation: None,
                told: None,
            });
        }
        plan
    }

    /// Writes an Event about each running container, at the start of the grace period.
    fn note_stopping(&mut self) {
        let pod = self.pod;
        for (list, statuses) in [
            ("initContainers", "initContainerStatuses"),
            ("containers", "containerStatuses"),
        ] {
            for container in Cursor::root(pod).maps(&format!("status.{statuses}")).map(Cursor::root) {
                if container.is_set("state.running") {
                    let name = container.text("name");
                    self.note(list, name, "Killing", format!("Stopping container {name}"), false);
                }
            }
        }
    }

    /// Returns the status of a Pod after its containers have stopped.
    fn stopped_status(&self, code: i32) -> Map {
        let mut next = status(self.pod).clone();
        let mut all_fine = true;
        for list in ["containerStatuses", "initContainerStatuses"] {
            let stopped: Vec<Map> = Cursor::root(&next)
                .maps(list)
                .map(|it| stopped(it, code, &self.stamp))
                .collect();
            if list == "containerStatuses" {
                let end = |it: &Map| {
                    Cursor::root(it)
                        .map_or_empty("state.terminated")
                        .get("exitCode")
                        .cloned()
                };
                // A Pod that is stopped before it has containers has not succeeded.
                all_fine = !stopped.is_empty() && stopped.iter().all(|it| end(it) == Some(json!(0)));
            }
            if !stopped.is_empty() {
                next.insert(list.into(), stopped.into_iter().map(Value::Object).collect());
            }
        }
        next.insert("phase".into(), if all_fine { "Succeeded" } else { "Failed" }.into());
        let reason = if all_fine { "PodCompleted" } else { "PodFailed" };
        let mut list = crate::workers::workloads::sees::conditions(&next);
        for condition in list.iter_mut().filter_map(|it| it.as_object_mut()) {
            let kind = Cursor::root(condition).text("type").to_owned();
            if !matches!(&*kind, "Ready" | "ContainersReady" | "PodReadyToStartContainers") {
                continue;
            }
            if Cursor::root(condition).text("status") != "False" {
                condition.insert("lastTransitionTime".into(), self.stamp.clone().into());
            }
            condition.insert("status".into(), "False".into());
            condition.remove("message");
            if kind != "PodReadyToStartContainers" {
                condition.insert("reason".into(), reason.into());
            }
        }
        next.insert("conditions".into(), list.into());
        next
    }
}

/// Returns the status of a stopped container; a container that never ran is reported as killed.
pub(super) fn stopped(container: &Map, code: i32, now: &str) -> Map {
    let mut next = container.clone();
    let state = Cursor::root(container).map_or_empty("state");
    next.insert("ready".into(), false.into());
    next.insert("started".into(), false.into());
    if Cursor::root(state).map("terminated").is_some() {
        return next;
    }
    let running = Cursor::root(state).map("running");
    let code = if running.is_some() { code } else { KILLED };
    let started = running.map_or("", |it| Cursor::root(it).text("startedAt"));
    let end = ended(code, started, now, Cursor::root(container).text("containerID"));
    next.insert("state".into(), json!({"terminated": end}));
    next
}
