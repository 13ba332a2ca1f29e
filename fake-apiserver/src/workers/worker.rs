//! `Worker`: the names of the workers.

use std::fmt;

/// A part of a cluster that acts by itself, to be asked for with `ApiServerBuilder::workers`.
///
/// ```
/// use fake_apiserver::Worker;
///
/// let gc = Worker::parse_list("gc,namespace").unwrap();
/// assert_eq!(gc, [Worker::GarbageCollector, Worker::Namespace]);
/// assert!(Worker::parse_list("all").unwrap().contains(&Worker::Namespace));
/// assert!(Worker::parse_list("gx").unwrap_err().to_string().contains("gc, namespace"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Worker {
    /// Deletes objects whose owners are gone, and holds or releases owners whose deletion waits for their dependents.
    GarbageCollector,
    /// Empties namespaces that are being deleted, and then lets them go.
    Namespace,
    /// Counts what ResourceQuotas are about, with each write and without requests of its own; see
    /// [`resource_quota_controller`](crate::ApiServerBuilder::resource_quota_controller).
    ResourceQuota,
    /// Fills aggregated ClusterRoles from those that their selectors find, with each write of a ClusterRole and without
    /// requests of its own. The bootstrap roles `admin`, `edit` and `view` are filled from the start.
    ClusterRoleAggregation,
    /// Gives every namespace the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt`, and fills Secrets of
    /// type `kubernetes.io/service-account-token`.
    ServiceAccount,
    /// Rolls Deployments out by ReplicaSets, scales them, keeps their history.
    Deployment,
    /// Keeps as many Pods as ReplicaSets and ReplicationControllers ask for.
    ReplicaSet,
    /// Keeps the Pods and claims of StatefulSets, in their order.
    StatefulSet,
    /// Keeps a Pod of each DaemonSet on each Node that fits.
    DaemonSet,
    /// Runs Jobs to their end, and deletes them a time after it where they say so.
    Job,
    /// Makes Jobs by the schedules of CronJobs.
    CronJob,
    /// Keeps the EndpointSlices and Endpoints of Services with a selector, and mirrors the Endpoints of others.
    Endpoints,
    /// Counts what PodDisruptionBudgets allow.
    Disruption,
    /// Binds PersistentVolumeClaims, to volumes that are there or to new ones.
    Volumes,
    /// The scheduler and the kubelets: puts Pods on Nodes and lets them run by a script, see
    /// [`Kubelet`](crate::Kubelet).
    Kubelet,
}

/// A word that names no worker.
#[derive(Clone, Debug, thiserror::Error)]
#[error("there is no worker {word:?}; there are {}", Worker::words())]
pub struct UnknownWorker {
    word: String,
}

impl Worker {
    /// Every worker, in the order in which they take their turns.
    pub const ALL: &'static [Worker] = &[
        Worker::GarbageCollector,
        Worker::Namespace,
        Worker::ResourceQuota,
        Worker::ClusterRoleAggregation,
        Worker::ServiceAccount,
        Worker::Deployment,
        Worker::ReplicaSet,
        Worker::StatefulSet,
        Worker::DaemonSet,
        Worker::Job,
        Worker::CronJob,
        Worker::Endpoints,
        Worker::Disruption,
        Worker::Volumes,
        Worker::Kubelet,
    ];

    /// The controllers of workloads, and the nodes that run them: all but the garbage collector and the controllers of
    /// namespaces, quotas and ClusterRoles.
    pub const WORKLOADS: &'static [Worker] = match Self::ALL {
        [
            Worker::GarbageCollector,
            Worker::Namespace,
            Worker::ResourceQuota,
            Worker::ClusterRoleAggregation,
            life @ ..,
        ] => life,
        _ => panic!("those four come first"),
    };

    /// The word for it on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Worker::GarbageCollector => "gc",
            Worker::Namespace => "namespace",
            Worker::ResourceQuota => "resourcequota",
            Worker::ClusterRoleAggregation => "clusterrole",
            Worker::ServiceAccount => "serviceaccount",
            Worker::Deployment => "deployment",
            Worker::ReplicaSet => "replicaset",
            Worker::StatefulSet => "statefulset",
            Worker::DaemonSet => "daemonset",
            Worker::Job => "job",
            Worker::CronJob => "cronjob",
            Worker::Endpoints => "endpoints",
            Worker::Disruption => "disruption",
            Worker::Volumes => "volumes",
            Worker::Kubelet => "kubelet",
        }
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
