//! Controllers of workloads: controllers of kube-controller-manager, the scheduler and the kubelets. Each controller is
//! a function from an object and related objects to a plan, and depends neither on storage nor on requests.

mod resource;
mod cluster;
mod sees;
mod plan;
mod controller;
mod pods;
mod scale;
mod go_text;
mod back_off;
mod fit;
mod node_rules;
mod ports;
mod placement;
mod preemption;
mod pod_claims;
mod ephemeral;
mod volume_match;
mod volume_binding;
mod scheduler;
mod kwok;
mod heartbeat;
pub(super) mod kubelet;
pub(super) mod replica_set;
pub(super) mod deployment;
pub(super) mod stateful_set;
mod revisions;
pub(super) mod daemon_set;
pub(super) mod job;
pub(super) mod cron_job;
mod schedule;
mod trigger_times;
mod endpoint_parts;
mod endpoint_slices;
pub(super) mod endpoints;
mod mirror;
pub(super) mod disruption;
pub(super) mod autoscaler;
pub(crate) mod metrics_server;
pub(super) mod node_lifecycle;
pub(super) mod pod_gc;
pub(super) mod volumes;
pub(super) mod resource_claim;
pub(super) mod service_cidr;
pub(super) mod service_account;
mod token_secret;
mod recorder;
mod execute;
mod life;

pub(crate) use controller::WorkloadController;
pub use kubelet::{Kubelet, PodScript, PodSelector, ProbeKind, ScriptOrder};
pub use kwok::StageError;
pub(crate) use life::Workloads;

use resource::Resource;

use crate::storage::Key;
use crate::workers::Worker;

/// An object to be synced by a controller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Task {
    worker: Worker,
    resource: Resource,
    key: Key,
}

impl Task {
    fn controller(&self) -> Option<&'static WorkloadController> {
        let mut controllers = self.worker.workloads().iter();
        controllers.find(|it| it.resource == self.resource)
    }
}
