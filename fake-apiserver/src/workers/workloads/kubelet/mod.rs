//! The kubelet of all nodes: simulates scheduled Pods from Pending to their end according to a script. The next status
//! is computed from the Pod, its script and the time.

mod look;
mod turn;
mod admission;
mod command;
mod environment;
mod health;
mod resize;
mod container;
mod described;
pub(super) mod node;
mod nodes;
mod probe;
mod script;
mod status;
mod stop;

pub use described::ScriptOrder;
pub(crate) use nodes::Nodes;
pub use probe::ProbeKind;
pub use script::{Kubelet, PodScript, PodSelector};

use super::controller::{Sender, Sync, WorkloadController};
use super::plan::Plan;
use super::resource::Resource;
use crate::workers::WorkerRow;

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "kubelet",
    &[
        // Nodes are processed first, so that a new Node is ready before Pods are placed.
        WorkloadController {
            sender: Sender::Kubelet,
            sync: Sync::Nodes(turn::sync_node),
            ..WorkloadController::new(Resource::Node, "", |_, _| Plan::EMPTY)
        },
        WorkloadController {
            sender: Sender::Kubelet,
            sync: Sync::Nodes(turn::place_or_run),
            concerns: turn::concerns,
            ..WorkloadController::new(Resource::Pod, "", |_, _| Plan::EMPTY)
        },
        WorkloadController {
            sender: Sender::Kubelet,
            ..WorkloadController::new(Resource::DaemonSet, "", |_, sees| {
                let mut plan = Plan::default();
                node::register_first(sees, &mut plan);
                plan
            })
        },
    ],
);
