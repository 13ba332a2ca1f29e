//! `Worker`: the list of workers. The file of each worker defines it with a `WorkerRow`.

#[cfg(feature = "workers")]
use super::{garbage_collector, namespace, policy_status, row, workloads};

/// Generates the enum, the list of its values and the function that returns their rows from a single list.
macro_rules! workers {
    ($(#[$about:meta])* pub enum Worker { $($(#[$doc:meta])+ $name:ident => $row:expr,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Worker { $($(#[$doc])+ $name,)+ }

        impl Worker {
            /// All workers, in the order in which they observe changes and sync keys.
            pub const ALL: &'static [Worker] = &[$(Worker::$name),+];

            #[cfg(feature = "workers")]
            pub(crate) const fn row(self) -> &'static row::WorkerRow {
                match self {
                    $(Worker::$name => { const ROW: &row::WorkerRow = &$row; ROW })+
                }
            }
        }
    };
}

workers! {
/// A controller or other component of a cluster that acts on its own; enabled by `ApiServerBuilder::workers`. All
/// workers except [`ResourceQuota`](Self::ResourceQuota) and [`ClusterRoleAggregation`](Self::ClusterRoleAggregation)
/// need the feature `workers`.
pub enum Worker {
    /// Deletes objects after their owners were deleted, and finishes the deletion of owners once their dependents are
    /// gone.
    GarbageCollector => garbage_collector::ROW,
    /// Deletes the content of terminating namespaces, and then the namespaces.
    Namespace => namespace::ROW,
    /// Counts the usage of ResourceQuotas at each write, without sending requests; see
    /// [`resource_quota_controller`](crate::ApiServerBuilder::resource_quota_controller).
    ResourceQuota => row::RESOURCE_QUOTA,
    /// Aggregates ClusterRoles by their selectors at each write of a ClusterRole, without sending requests. The
    /// bootstrap roles `admin`, `edit` and `view` are aggregated from the start.
    ClusterRoleAggregation => row::CLUSTER_ROLE_AGGREGATION,
    /// Checks the types of the expressions of ValidatingAdmissionPolicies against the schemas of the kinds that they
    /// match, and writes the errors to `status.typeChecking`.
    ValidatingAdmissionPolicyStatus => policy_status::ROW,
    /// Creates the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt` in every namespace, and fills Secrets
    /// of type `kubernetes.io/service-account-token`.
    ServiceAccount => workloads::service_account::ROW,
    /// Rolls out Deployments through ReplicaSets, scales them, and keeps their revision history.
    Deployment => workloads::deployment::ROW,
    /// Maintains the number of Pods that ReplicaSets and ReplicationControllers specify.
    ReplicaSet => workloads::replica_set::ROW,
    /// Maintains the Pods and claims of StatefulSets: in order, unless `podManagementPolicy` is `Parallel`.
    StatefulSet => workloads::stateful_set::ROW,
    /// Maintains one Pod of each DaemonSet on each suitable Node.
    DaemonSet => workloads::daemon_set::ROW,
    /// Runs Jobs to completion, and deletes finished Jobs after `ttlSecondsAfterFinished`.
    Job => workloads::job::ROW,
    /// Creates Jobs on the schedules of CronJobs.
    CronJob => workloads::cron_job::ROW,
    /// Maintains the EndpointSlices and Endpoints of Services with a selector, and mirrors the Endpoints of other
    /// Services.
    Endpoints => workloads::endpoints::ROW,
    /// Computes the number of disruptions that PodDisruptionBudgets allow, and resets the condition `DisruptionTarget`
    /// of Pods that were not deleted within two minutes.
    Disruption => workloads::disruption::ROW,
    /// Scales the targets of HorizontalPodAutoscalers every 15 s, based on the usage and the metrics that are set in
    /// [`Kubelet`](crate::Kubelet).
    HorizontalPodAutoscaler => workloads::autoscaler::ROW,
    /// Taints Nodes according to their conditions, and evicts Pods that do not tolerate a taint. A Node is lost if its
    /// condition `Ready` is `Unknown`. A test sets this status, or the worker sets it 50 s after the last heartbeat of
    /// the Node. Heartbeats are only sent on request, see [`Kubelet::stop_node`](crate::Kubelet::stop_node) and
    /// [`Kubelet::send_heartbeats`](crate::Kubelet::send_heartbeats).
    NodeLifecycle => workloads::node_lifecycle::ROW,
    /// Removes the Pods of a Node 40 s after the Node was deleted, and the terminating Pods of a Node that is not ready
    /// and has the taint `node.kubernetes.io/out-of-service`. Pods of a Node that never existed are kept.
    PodGarbageCollector => workloads::pod_gc::ROW,
    /// Binds PersistentVolumeClaims to existing volumes or to new ones, and creates the claims of generic ephemeral
    /// volumes.
    Volumes => workloads::volumes::ROW,
    /// Creates the ResourceClaims of Pods from their templates, reserves allocated claims for Pods that have a node,
    /// and releases and deletes claims when their Pods end. The scheduler does not allocate claims: a test writes
    /// `status.allocation`, as in tests of DRA drivers.
    ResourceClaim => workloads::resource_claim::ROW,
    /// Sets the condition `Ready` and the finalizer of ServiceCIDRs. Removes the finalizer of a ServiceCIDR that is
    /// being deleted once no IPAddress needs it.
    ServiceCidr => workloads::service_cidr::ROW,
    /// Runs the scheduler and the kubelets: assigns Pods to Nodes and runs them with a script, see
    /// [`Kubelet`](crate::Kubelet).
    Kubelet => workloads::kubelet::ROW,
}
}

impl Worker {
    /// Returns `true` if this build contains the worker. Without the feature `workers`, only the workers that the
    /// registry runs with each write are available.
    pub(crate) const fn is_available(self) -> bool {
        cfg!(feature = "workers") || matches!(self, Self::ResourceQuota | Self::ClusterRoleAggregation)
    }
}
