//! Workers: controllers of kube-controller-manager, the scheduler and the kubelets, which only run if they are enabled.
//! They read storage like informers, and write through requests. Apart from requests, they do not depend on HTTP.
//!
//! # How it works
//!
//! A single task, the `pump`, reads the logs of all resources with one cursor. It passes each change to every worker in
//! the order of revisions ([`Controller::observe`]). Then the workers take turns, in the order of the variants of
//! [`Worker`], and each syncs one key ([`Controller::sync`]). The controllers of workloads share one queue, and
//! therefore one turn. Before every turn the pump passes on the changes since the previous one, so that a `sync` reads
//! a state that has been fully observed. With a paused clock and a single thread, a run only depends on the seed. When
//! no key is ready, the pump sleeps until the next commit or the next delayed key.
//!
//! To be called again later, a worker adds a delayed key to its [`WorkQueue`]; a failed key is retried after 5 ms, 10
//! ms and so on up to 1000 s. The memory of a worker must be derivable from the objects: after `ApiServer::restore`, in
//! a fork, and after changes were dropped from the log, the worker is [reset](Controller::reset) and observes every
//! object as if it were new.
//!
//! # A controller
//!
//! ```text
//! /// Gives every ConfigMap a label.
//! struct Labeller;
//!
//! impl Controller for Labeller {
//!     type Key = Key;                                    // storage::Key: namespace and name
//!
//!     fn identity(&self) -> Identity {
//!         Identity::controller("labeller")               // system:serviceaccount:kube-system:labeller
//!     }
//!
//!     fn follows(&self) -> Follows {
//!         Follows::These(&["configmaps"])
//!     }
//!
//!     fn observe(&mut self, change: &Observed<'_>, queue: &mut WorkQueue<Key>) {
//!         if let Some(stored) = change.new {
//!             queue.add(stored.key.clone());
//!         }
//!     }
//!
//!     async fn sync(&mut self, key: Key, context: &mut Context<'_, Key>) -> Result<(), RequestFailure> {
//!         let api = context.api;
//!         let Some(map) = api.get("configmaps", &key) else { return Ok(()) };
//!         if map.labels().any(|(key, _)| key == "seen") {
//!             return Ok(());
//!         }
//!         let patch = json!({"metadata": {"labels": {"seen": "true"}}});
//!         api.patch("configmaps", "", &key, PatchKind::Merge, &patch).await?;
//!         Ok(())
//!     }
//! }
//! ```
//!
//! Its file defines a [`WorkerRow`], `const ROW: WorkerRow = WorkerRow::alone::<Labeller>("labeller")`, which is added
//! to the list in `worker.rs`.

mod api;
mod controller;
mod expiry;
mod garbage_collector;
mod hash;
mod host;
mod identity;
pub(crate) mod meta;
mod namespace;
mod objects;
mod observed;
mod policy_status;
mod pump;
mod queue;
mod recorder;
mod row;
#[cfg(test)]
mod tests;
mod words;
mod worker;
mod workloads;

pub(crate) use api::{Api, RequestFailure};
pub(crate) use controller::{Context, Controller, Follows};
pub(crate) use expiry::expire_events;
pub(crate) use host::Host;
pub(crate) use identity::Identity;
pub(crate) use meta::{Meta, OwnerReference};
pub(crate) use objects::{node_address, node_info, objects_of_namespace};
pub(crate) use observed::Observed;
pub(crate) use queue::WorkQueue;
pub(crate) use recorder::Regarding;
pub(crate) use row::WorkerRow;
pub use words::UnknownWorker;
pub use worker::Worker;
pub(crate) use workloads::metrics_server;
pub use workloads::{Kubelet, PodScript, PodSelector, ProbeKind, ScriptOrder, StageError};

use std::sync::Arc;

use crate::tasks::TaskGroup;
use controller::Runner;
use pump::Pump;
use row::Runs;
use workloads::Workloads;

/// Starts workers for a server, each once and in the order of the variants of [`Worker`]. They end with the group. Must
/// be called inside a tokio runtime, unless the list is empty.
pub(crate) fn start(host: &Arc<dyn Host>, workers: &[Worker], kubelet: &Kubelet, group: &TaskGroup) {
    let mut lanes = Vec::new();
    let mut workloads = Vec::new();
    for worker in Worker::ALL.iter().filter(|it| workers.contains(it)) {
        match worker.row().runs {
            Runs::InWrites => {}
            Runs::Alone(lane) => lanes.push(lane()),
            Runs::Workloads(_) => workloads.push(*worker),
        }
    }
    if !workloads.is_empty() {
        lanes.push(Box::new(Runner::new(Workloads::new(workloads, kubelet.clone()))));
    }
    if !lanes.is_empty() {
        group.spawn(Pump::new(host, lanes).run());
    }
}
