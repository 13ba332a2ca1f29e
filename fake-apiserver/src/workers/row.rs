//! `WorkerRow`: the facts about a worker that the server needs, defined in the worker's own file.

use super::controller::{Controller, Lane, Runner};
use super::workloads::WorkloadController;

/// A worker: its name on the command line, and the code that runs it.
pub(crate) struct WorkerRow {
    pub(crate) word: &'static str,
    pub(crate) runs: Runs,
}

/// The way in which a worker runs.
pub(crate) enum Runs {
    /// Runs in the registry as part of each write; nothing is started.
    InWrites,
    /// As a [`Controller`] with its own queue.
    Alone(fn() -> Box<dyn Lane>),
    /// As controllers of workloads, which share a queue and a view of the cluster.
    Workloads(&'static [WorkloadController]),
}

impl WorkerRow {
    /// A worker that the registry runs with each write.
    pub(crate) const fn in_writes(word: &'static str) -> Self {
        let runs = Runs::InWrites;
        Self { word, runs }
    }

    /// A worker with its own queue.
    pub(crate) const fn alone<C: Controller + Default>(word: &'static str) -> Self {
        let runs = Runs::Alone(|| Box::new(Runner::new(C::default())));
        Self { word, runs }
    }

    /// A worker that consists of controllers of workloads.
    pub(crate) const fn workloads(word: &'static str, controllers: &'static [WorkloadController]) -> Self {
        let runs = Runs::Workloads(controllers);
        Self { word, runs }
    }
}
