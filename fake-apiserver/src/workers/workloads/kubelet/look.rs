//! `Look`: the state of a Pod during one sync, and its memory between two syncs.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::probe::Known;
use super::script::PodScript;
use crate::api::json::Map;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::kwok::Pending;
use crate::workers::workloads::plan::{Note, Plan, Regarding, Write};
use crate::workers::workloads::pods::{self, is_finished};
use crate::workers::workloads::resource::Resource;
use crate::workers::workloads::sees::Sees;

/// Times of a Pod's events, finer than its status records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// Time since which each container is in its present state; the Pod itself is under the empty name.
    pub(super) since: BTreeMap<String, Timestamp>,
    /// Time at which the deletion was observed.
    pub(super) stopping: Option<Timestamp>,
    /// The address the Pod gets.
    pub(crate) address: String,
    /// The address of its node.
    pub(crate) host: String,
    /// The Node of the Pod, as last observed.
    pub(super) node: HostState,
    /// The Stage that the Pod waits for.
    pub(super) stage: Option<Pending>,
    /// The probes that fail by the script of the last sync; `None` before the first sync.
    pub(super) outages: Option<Known>,
}

/// The Node of a Pod.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum HostState {
    /// It has not been observed.
    #[default]
    Unobserved,
    Exists,
    /// It was deleted; its absence was first observed at this time.
    Deleted(Timestamp),
}

/// State of a Pod during one sync.
pub(super) struct Look<'a> {
    pub(super) pod: &'a Object,
    pub(super) script: &'a PodScript,
    pub(super) memory: &'a mut Memory,
    pub(super) sees: &'a Sees<'a>,
    pub(super) now: Timestamp,
    pub(super) stamp: String,
    /// Reason and message for which the resources of containers do not change.
    pub(super) refused_resize: Option<(&'static str, String)>,
    /// Time of the next event.
    pub(super) again: Option<Timestamp>,
    pub(super) notes: Vec<Write>,
}

/// Plans the next step of a Pod that has a node.
pub(super) fn sync(mut look: Look<'_>) -> Plan {
    let mut plan = Plan::default();
    let pod = look.pod;
    if pod.is_terminating() {
        return look.stop();
    }
    if is_finished(pod) {
        return plan;
    }
    look.note_outages();
    let next = look.advance();
    plan.status(Resource::Pod, pod, next);
    plan.writes.append(&mut look.notes);
    plan.again = look.again;
    plan
}

impl Look<'_> {
    /// Schedules the next sync at `at`, or earlier.
    pub(super) fn look_again(&mut self, at: Timestamp) {
        self.again = Some(self.again.map_or(at, |it| it.min(at)));
    }

    /// Returns `true` if this time has passed since `since`; otherwise schedules a sync at that time.
    pub(super) fn has_passed(&mut self, since: Timestamp, time: std::time::Duration) -> bool {
        let due = later(since, time);
        if due <= self.now {
            return true;
        }
        self.look_again(due);
        false
    }

    /// Returns the time since which a container is in its present state; `recorded` is the time in the status.
    pub(super) fn since(&self, container: &str, recorded: Option<Timestamp>) -> Timestamp {
        self.memory
            .since
            .get(container)
            .copied()
            .or(recorded)
            .unwrap_or(self.now)
    }

    /// Records that a container has changed now.
    pub(super) fn mark(&mut self, container: &str) {
        self.memory.since.insert(container.to_owned(), self.now);
    }

    /// An Event about a container.
    pub(super) fn note(
        &mut self,
        list: &str,
        container: &str,
        reason: &'static str,
        message: String,
        is_warning: bool,
    ) {
        let mut about = Regarding::of(Resource::Pod, self.pod);
        about.field_path = format!("spec.{list}{{{container}}}");
        self.notes.push(Write::Note(Note {
            about,
            component: "kubelet",
            host: Cursor::root(self.pod).text("spec.nodeName").to_owned(),
            is_warning,
            reason: reason.into(),
            message,
        }));
    }
}

pub(super) fn later(since: Timestamp, time: std::time::Duration) -> Timestamp {
    let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    since.saturating_add(time).unwrap_or(Timestamp::MAX)
}

/// `spec.terminationGracePeriodSeconds`, as the deletion requested it.
pub(super) fn grace(pod: &Object) -> Option<i64> {
    pod.metadata()
        .and_then(|meta| Cursor::root(meta).integer("deletionGracePeriodSeconds"))
}

/// Returns the start time of a Pod.
pub(super) fn started(status: &Map) -> Option<Timestamp> {
    pods::time(Cursor::root(status).text("startTime"))
}
