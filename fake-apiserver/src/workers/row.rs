//! `WorkerRow`: the definition of a worker, which each worker's file contains.

use super::controller::{Controller, Lane, Runner};
use super::workloads::WorkloadController;

/// A worker: its name on the command line, and the code that runs it.
pub(crate) struct WorkerRow {
    pub(crate) word: &'static str,
    pub(crate) runs: Runs,
}

/// The way in which a worker runs.
pub(crate) enum Runs {
    /// The registry runs the worker as part of each write, without a task.
    InWrites,
    /// The worker is a [`Controller`] with its own queue.
    Alone(fn() -> Box<dyn Lane>),
    /// The worker consists of controllers of workloads, which share a queue and a view of the cluster.
    Workloads(&'static [WorkloadController]),
}

impl WorkerRow {
    /// Defines a worker that the registry runs with each write.
    pub(crate) const fn in_writes(word: &'static str) -> Self {
        let runs = Runs::InWrites;
        Self { word, runs }
    }

    /// Defines a worker with its own queue.
    pub(crate) const fn alone<C: Controller + Default>(word: &'static str) -> Self {
        let runs = Runs::Alone(|| Box::new(Runner::new(C::default())));
        Self { word, runs }
    }

    /// Defines a worker that consists of controllers of workloads.
    pub(crate) const fn workloads(word: &'static str, controllers: &'static [WorkloadController]) -> Self {
        let runs = Runs::Workloads(controllers);
        Self { word, runs }
    }
}

/// Row of the quota controller: the admission plugin counts the usage with each write.
pub(super) const RESOURCE_QUOTA: WorkerRow = WorkerRow::in_writes("resourcequota");

/// Row of the ClusterRole aggregation, which the authorizer performs with each write.
pub(super) const CLUSTER_ROLE_AGGREGATION: WorkerRow = WorkerRow::in_writes("clusterrole");
