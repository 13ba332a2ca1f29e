//! `Worker`: the list of workers. Each is described by the [`WorkerRow`] in its own file.

use std::fmt;

use super::row::{Runs, WorkerRow};
use super::workloads::WorkloadController;
use super::{garbage_collector, namespace, workloads};

/// Quotas are counted by their admission plugin.
const RESOURCE_QUOTA: WorkerRow = WorkerRow::in_writes("resourcequota");

/// ClusterRoles are aggregated by the authorizer.
const CLUSTER_ROLE_AGGREGATION: WorkerRow = WorkerRow::in_writes("clusterrole");

/// Makes the enum, its list and the way to the rows out of one list.
macro_rules! workers {
    ($(#[$about:meta])* pub enum Worker { $($(#[$doc:meta])+ $name:ident => $row:expr,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Worker { $($(#[$doc])+ $name,)+ }

        impl Worker {
            /// Every worker, in the order in which they take their turns.
            pub const ALL: &'static [Worker] = &[$(Worker::$name),+];

            pub(crate) const fn row(self) -> &'static WorkerRow {
                match self {
                    $(Worker::$name => { const ROW: &WorkerRow = &$row; ROW })+
                }
            }
        }
    };
}

workers! {
/// A part of a cluster that acts by itself, to be asked for with `ApiServerBuilder::workers`.
///
/// ```
/// use fake_apiserver::Worker;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gc = Worker::parse_list("gc,namespace")?;
/// assert_eq!(gc, [Worker::GarbageCollector, Worker::Namespace]);
/// assert!(Worker::parse_list("all")?.contains(&Worker::Namespace));
/// assert!(Worker::parse_list("gx").unwrap_err().to_string().contains("gc, namespace"));
/// # Ok(())
/// # }
/// ```
pub enum Worker {
    /// Deletes objects whose owners are gone, and holds or releases owners whose deletion waits for their dependents.
    GarbageCollector => garbage_collector::ROW,
    /// Empties namespaces that are being deleted, and then lets them go.
    Namespace => namespace::ROW,
    /// Counts what ResourceQuotas are about, with each write and without requests of its own; see
    /// [`resource_quota_controller`](crate::ApiServerBuilder::resource_quota_controller).
    ResourceQuota => RESOURCE_QUOTA,
    /// Fills aggregated ClusterRoles from those that their selectors find, with each write of a ClusterRole and without
    /// requests of its own. The bootstrap roles `admin`, `edit` and `view` are filled from the start.
    ClusterRoleAggregation => CLUSTER_ROLE_AGGREGATION,
    /// Gives every namespace the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt`, and fills Secrets of
    /// type `kubernetes.io/service-account-token`.
    ServiceAccount => workloads::service_account::ROW,
    /// Rolls Deployments out by ReplicaSets, scales them, keeps their history.
    Deployment => workloads::deployment::ROW,
    /// Keeps as many Pods as ReplicaSets and ReplicationControllers ask for.
    ReplicaSet => workloads::replica_set::ROW,
    /// Keeps the Pods and claims of StatefulSets, in their order.
    StatefulSet => workloads::stateful_set::ROW,
    /// Keeps a Pod of each DaemonSet on each Node that fits.
    DaemonSet => workloads::daemon_set::ROW,
    /// Runs Jobs to their end, and deletes them a time after it where they say so.
    Job => workloads::job::ROW,
    /// Makes Jobs by the schedules of CronJobs.
    CronJob => workloads::cron_job::ROW,
    /// Keeps the EndpointSlices and Endpoints of Services with a selector, and mirrors the Endpoints of others.
    Endpoints => workloads::endpoints::ROW,
    /// Counts what PodDisruptionBudgets allow.
    Disruption => workloads::disruption::ROW,
    /// Binds PersistentVolumeClaims, to volumes that are there or to new ones.
    Volumes => workloads::volumes::ROW,
    /// The scheduler and the kubelets: puts Pods on Nodes and lets them run by a script, see
    /// [`Kubelet`](crate::Kubelet).
    Kubelet => workloads::kubelet::ROW,
}
}

/// A word that names no worker.
#[derive(Clone, Debug, thiserror::Error)]
#[error("there is no worker {word:?}; there are {}", Worker::words())]
pub struct UnknownWorker {
    word: String,
}

impl Worker {
    /// The controllers of workloads, and the nodes that run them: all but the garbage collector and the controllers of
    /// namespaces, quotas and ClusterRoles.
    pub const WORKLOADS: &'static [Worker] = {
        let mut first = 0;
        while !matches!(Self::ALL[first].row().runs, Runs::Workloads(_)) {
            first += 1;
        }
        Self::ALL.split_at(first).1
    };

    /// Its controllers of workloads.
    pub(super) fn workloads(self) -> &'static [WorkloadController] {
        match self.row().runs {
            Runs::Workloads(controllers) => controllers,
            Runs::InWrites | Runs::Alone(_) => &[],
        }
    }

    /// The word for it on the command line.
    pub fn as_str(self) -> &'static str {
        self.row().word
    }

    /// The workers that a list such as `gc,namespace` names. `workloads` stands for all of [`Worker::WORKLOADS`], and
    /// `all` for all there are.
    ///
    /// # Errors
    ///
    /// If a word names none; the error lists those that do.
    pub fn parse_list(text: &str) -> Result<Vec<Worker>, UnknownWorker> {
        let mut found = Vec::new();
        for word in text.split(',').map(str::trim) {
            match word {
                "all" => found.extend_from_slice(Self::ALL),
                "workloads" => found.extend_from_slice(Self::WORKLOADS),
                _ => {
                    let worker = Self::ALL.iter().find(|it| it.as_str() == word);
                    let unknown = || UnknownWorker { word: word.to_owned() };
                    found.push(*worker.ok_or_else(unknown)?);
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// All words, to be shown to people.
    fn words() -> String {
        let own = Self::ALL.iter().map(|it| it.as_str());
        own.chain(["workloads", "all"]).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
