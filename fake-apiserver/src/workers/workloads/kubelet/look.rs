//! `Look`: a Pod during a sync; and `Memory`: the state that is kept between syncs.

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

/// State that the kubelet and the eviction by taints keep for a Pod. Its times are more precise than the times in the
/// Pod's status.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// Time since which each container has been in its current state; the empty name is the Pod itself.
    pub(super) since: BTreeMap<String, Timestamp>,
    /// Time at which the deletion was observed.
    pub(super) stopping: Option<Timestamp>,
    /// The current or future address of the Pod.
    pub(crate) address: String,
    /// The address of its node.
    pub(crate) host: String,
    /// The Node of the Pod, as last observed.
    pub(super) node: HostState,
    /// Time at which the Pod is evicted because of a taint of its Node.
    pub(super) eviction: Option<Timestamp>,
    /// The KWOK Stage that the Pod waits for.
    pub(super) stage: Option<Pending>,
    /// The probes with failures in the script of the last sync; `None` before the first sync.
    pub(super) outages: Option<Known>,
}

/// The Node of a Pod.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum HostState {
    /// The Node has not been observed.
    #[default]
    Unobserved,
    Exists,
    /// The Node was deleted; this was first observed at this time.
    Deleted(Timestamp),
}

/// A Pod during a sync.
pub(super) struct Look<'a> {
    pub(super) pod: &'a Object,
    pub(super) script: &'a PodScript,
    pub(super) memory: &'a mut Memory,
    pub(super) sees: &'a Sees<'a>,
    pub(super) now: Timestamp,
    pub(super) stamp: String,
    /// Reason and message if a resize of the containers is refused.
    pub(super) refused_resize: Option<(&'static str, String)>,
    /// Time of the next sync.
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

    /// Returns `true` if `time` has passed since `since`; otherwise schedules a sync for the time when it will have
    /// passed.
    pub(super) fn has_passed(&mut self, since: Timestamp, time: std::time::Duration) -> bool {
        let due = later(since, time);
        if due <= self.now {
            return true;
        }
        self.look_again(due);
        false
    }

    /// Returns the time since which a container has been in its current state; `recorded` is the time in the status.
    pub(super) fn since(&self, container: &str, recorded: Option<Timestamp>) -> Timestamp {
        self.memory
            .since
            .get(container)
            .copied()
            .or(recorded)
            .unwrap_or(self.now)
    }

    /// Records that the state of a container changes now.
    pub(super) fn mark(&mut self, container: &str) {
        self.memory.since.insert(container.to_owned(), self.now);
    }

    /// Writes an Event about a container.
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

/// Returns the grace period requested by the deletion, in seconds.
pub(super) fn grace(pod: &Object) -> Option<i64> {
    pod.metadata()
        .and_then(|meta| Cursor::root(meta).integer("deletionGracePeriodSeconds"))
}

/// Returns the start time of a Pod.
pub(super) fn started(status: &Map) -> Option<Timestamp> {
    pods::time(Cursor::root(status).text("startTime"))
}
