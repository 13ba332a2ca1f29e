//! Printers of built-in kinds with their own columns.

mod pod;
mod workloads;
mod batch;
mod autoscaling;
mod config;
mod event;
mod node;
mod network;
mod storage;
mod rbac;
mod admission;
mod certificates;
mod control;
mod dynamic_resources;

use super::columns::{AGE, Column, NAME};
use super::read::TableRow;
use crate::api::json::Value;

pub(super) use pod::row_conditions as pod_row_conditions;

/// Columns and cells of a kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Printer {
    pub(super) columns: &'static [Column],
    /// Returns one cell for each column, except for IPAddresses, which have an additional cell.
    pub(super) cells: fn(TableRow<'_>) -> Vec<Value>,
}

/// Printer of kinds that only have the columns Name and Age.
const NAME_AND_AGE: Printer = Printer {
    columns: &[NAME, AGE],
    cells: |row| vec![row.name(), row.age()],
};

/// Returns the printer of a kind; `None` for kinds whose columns are the name and the creation time.
pub(super) fn printer_of(group: &str, kind: &str) -> Option<Printer> {
    Some(match (group, kind) {
        ("", "Pod") => pod::POD,
        ("", "PodTemplate") => workloads::POD_TEMPLATE,
        ("", "ReplicationController") => workloads::REPLICATION_CONTROLLER,
        ("apps", "ReplicaSet") => workloads::REPLICA_SET,
        ("apps", "DaemonSet") => workloads::DAEMON_SET,
        ("apps", "Deployment") => workloads::DEPLOYMENT,
        ("apps", "StatefulSet") => workloads::STATEFUL_SET,
        ("apps", "ControllerRevision") => workloads::CONTROLLER_REVISION,
        ("policy", "PodDisruptionBudget") => workloads::POD_DISRUPTION_BUDGET,
        ("batch", "Job") => batch::JOB,
        ("batch", "CronJob") => batch::CRON_JOB,
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::HORIZONTAL_POD_AUTOSCALER,
        ("autoscaling", "Scale") => autoscaling::SCALE,
        ("", "ConfigMap") => config::CONFIG_MAP,
        ("", "Secret") => config::SECRET,
        ("", "ServiceAccount") => NAME_AND_AGE,
        ("", "Namespace") => config::NAMESPACE,
        ("", "ResourceQuota") => config::RESOURCE_QUOTA,
        ("", "ComponentStatus") => config::COMPONENT_STATUS,
        ("coordination.k8s.io", "Lease") => config::LEASE,
        ("coordination.k8s.io", "LeaseCandidate") => config::LEASE_CANDIDATE,
        ("" | "events.k8s.io", "Event") => event::EVENT,
        ("", "Node") => node::NODE,
        ("node.k8s.io", "RuntimeClass") => node::RUNTIME_CLASS,
        ("scheduling.k8s.io", "PriorityClass") => node::PRIORITY_CLASS,
        ("scheduling.k8s.io", "Workload") => node::WORKLOAD,
        ("", "Service") => network::SERVICE,
        ("", "Endpoints") => network::ENDPOINTS,
        ("discovery.k8s.io", "EndpointSlice") => network::ENDPOINT_SLICE,
        ("networking.k8s.io", "Ingress") => network::INGRESS,
        ("networking.k8s.io", "IngressClass") => network::INGRESS_CLASS,
        ("networking.k8s.io", "NetworkPolicy") => network::NETWORK_POLICY,
        ("networking.k8s.io", "ServiceCIDR") => network::SERVICE_CIDR,
        ("networking.k8s.io", "IPAddress") => network::IP_ADDRESS,
        ("", "PersistentVolume") => storage::PERSISTENT_VOLUME,
        ("", "PersistentVolumeClaim") => storage::PERSISTENT_VOLUME_CLAIM,
        ("storage.k8s.io", "StorageClass") => storage::STORAGE_CLASS,
        ("storage.k8s.io", "VolumeAttributesClass") => storage::VOLUME_ATTRIBUTES_CLASS,
        ("storage.k8s.io", "VolumeAttachment") => storage::VOLUME_ATTACHMENT,
        ("storage.k8s.io", "CSINode") => storage::CSI_NODE,
        ("storage.k8s.io", "CSIDriver") => storage::CSI_DRIVER,
        ("rbac.authorization.k8s.io", "RoleBinding") => rbac::ROLE_BINDING,
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => rbac::CLUSTER_ROLE_BINDING,
        ("admissionregistration.k8s.io", kind) => return admission::printer_of(kind),
        ("certificates.k8s.io", "CertificateSigningRequest") => certificates::SIGNING_REQUEST,
        ("certificates.k8s.io", "ClusterTrustBundle") => certificates::CLUSTER_TRUST_BUNDLE,
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => control::FLOW_SCHEMA,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => control::PRIORITY_LEVEL,
        ("internal.apiserver.k8s.io", "StorageVersion") => control::STORAGE_VERSION,
        ("storagemigration.k8s.io", "StorageVersionMigration") => control::STORAGE_VERSION_MIGRATION,
        ("apiregistration.k8s.io", "APIService") => control::API_SERVICE,
        ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate") => NAME_AND_AGE,
        ("resource.k8s.io", "ResourceClaim") => dynamic_resources::RESOURCE_CLAIM,
        ("resource.k8s.io", "ResourceSlice") => dynamic_resources::RESOURCE_SLICE,
        _ => return None,
    })
}
