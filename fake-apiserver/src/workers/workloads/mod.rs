//! The small cluster life: what kube-controller-manager, the scheduler and the kubelets make of workloads. Each
//! controller is a function from an object and what it sees to a plan; it knows neither storage nor requests.

mod resource;
mod cluster;
mod sees;
mod plan;
mod pods;
mod hash;
mod fit;
mod scheduler;
mod kubelet;
mod replica_set;
mod deployment;
mod stateful_set;
mod revisions;
mod daemon_set;
mod job;
mod cron_job;
mod schedule;
mod endpoints;
mod mirror;
mod disruption;
mod volumes;
mod service_account;
mod token_secret;
mod concerns;
mod recorder;
mod execute;
mod life;

pub use kubelet::{Kubelet, PodScript, PodSelector, ScriptOrder};
pub(crate) use life::Workloads;

use resource::Resource;

use crate::storage::Key;
use crate::workers::Worker;

/// An object that one controller has to look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Task {
    worker: Worker,
    resource: Resource,
    key: Key,
}
