//! The kubelet of all nodes: a Pod that has one goes from Pending to its end by a script. A function from the Pod, its
//! script and the time to what comes next.

mod command;
mod container;
mod described;
mod node;
mod nodes;
mod script;
mod status;
mod stop;

pub use described::ScriptOrder;
pub(crate) use nodes::Nodes;
pub use script::{Kubelet, PodScript, PodSelector};

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::controller::{Sender, Sync, WorkloadController};
use super::plan::{Note, Plan, Regarding, Write};
use super::pods::{self, is_finished};
use super::resource::Resource;
use super::scheduler;
use super::sees::Sees;
use crate::api::json::Map;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::WorkerRow;

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "kubelet",
    &[
        WorkloadController {
            sender: Sender::Kubelet,
            sync: Sync::Nodes(|pod, sees, nodes| match Cursor::root(pod).text("spec.nodeName") {
                "" => scheduler::sync(pod, &nodes.load, sees),
                _ => {
                    let (script, memory) = nodes.enter(pod, sees.cluster);
                    sync(pod, &script, memory, sees)
                }
            }),
            concerns: scheduler::concerns,
            ..WorkloadController::new(Resource::Pod, "", |_, _| Plan::EMPTY)
        },
        WorkloadController {
            sender: Sender::Kubelet,
            ..WorkloadController::new(Resource::Node, "", node::sync)
        },
    ],
);

/// Times of a Pod's events, finer than its status records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// Time since which each container is in its present state; the Pod itself is under the empty name.
    since: BTreeMap<String, Timestamp>,
    /// The deletion was seen.
    stopping: Option<Timestamp>,
    /// The address the Pod gets.
    pub(crate) address: String,
    /// The address of its node.
    pub(crate) host: String,
}

/// A Pod on its way, as one look at it sees it.
struct Look<'a> {
    pod: &'a Object,
    script: &'a PodScript,
    memory: &'a mut Memory,
    now: Timestamp,
    stamp: String,
    /// Time of the next event.
    again: Option<Timestamp>,
    notes: Vec<Write>,
}

/// Plans the next step of a Pod that has a node.
fn sync(pod: &Object, script: &PodScript, memory: &mut Memory, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    if Cursor::root(pod).text("spec.nodeName").is_empty() {
        return plan;
    }
    let mut look = Look {
        pod,
        script,
        memory,
        now: sees.now,
        stamp: sees.stamp(),
        again: None,
        notes: Vec::new(),
    };
    if pod.is_terminating() {
        return look.stop();
    }
    if is_finished(pod) {
        return plan;
    }
    let next = look.advance();
    plan.status(Resource::Pod, pod, next);
    plan.writes.append(&mut look.notes);
    plan.again = look.again;
    plan
}

impl Look<'_> {
    /// Looks again at `at`, or before.
    fn look_again(&mut self, at: Timestamp) {
        self.again = Some(self.again.map_or(at, |it| it.min(at)));
    }

    /// Returns `true` if so much time has passed since `since`; if not, looks again when it has.
    fn has_passed(&mut self, since: Timestamp, time: std::time::Duration) -> bool {
        let due = later(since, time);
        if due <= self.now {
            return true;
        }
        self.look_again(due);
        false
    }

    /// Returns the time since which a container is in its present state; `recorded` is the time in the status.
    fn since(&self, container: &str, recorded: Option<Timestamp>) -> Timestamp {
        self.memory
            .since
            .get(container)
            .copied()
            .or(recorded)
            .unwrap_or(self.now)
    }

    /// Remembers that a container changed now.
    fn mark(&mut self, container: &str) {
        self.memory.since.insert(container.to_owned(), self.now);
    }

    /// An Event about a container.
    fn note(&mut self, list: &str, container: &str, reason: &'static str, message: String, is_warning: bool) {
        let mut about = Regarding::of(Resource::Pod, self.pod);
        about.field_path = format!("spec.{list}{{{container}}}");
        self.notes.push(Write::Note(Note {
            about,
            component: "kubelet",
            host: Cursor::root(self.pod).text("spec.nodeName").to_owned(),
            is_warning,
            reason,
            message,
        }));
    }
}

fn later(since: Timestamp, time: std::time::Duration) -> Timestamp {
    let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    since.saturating_add(time).unwrap_or(Timestamp::MAX)
}

/// `spec.terminationGracePeriodSeconds` as it was asked for in the deletion.
fn grace(pod: &Object) -> Option<i64> {
    pod.metadata()
        .and_then(|meta| Cursor::root(meta).integer("deletionGracePeriodSeconds"))
}

/// Returns the start time of a Pod.
fn started(status: &Map) -> Option<Timestamp> {
    pods::time(Cursor::root(status).text("startTime"))
}
