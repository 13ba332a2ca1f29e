//! Selects the strategies of Pods and workloads.

use super::cron_job::CronJobStrategy;
use super::daemon_set::DaemonSetStrategy;
use super::deployment::DeploymentStrategy;
use super::job::JobStrategy;
use super::pod::PodStrategy;
use super::pod_template::{ControllerRevisionStrategy, PodTemplateStrategy};
use super::replica_set::{ReplicaSetStrategy, ReplicationControllerStrategy};
use super::stateful_set::StatefulSetStrategy;
use super::strategy::{Strategy, in_version};
use crate::api::kubernetes_version::KubernetesVersion;

/// Returns the strategy of Pods and workloads; `None` for all other resources.
pub(crate) fn workload_strategy(
    version: KubernetesVersion,
    group: &str,
    resource: &str,
) -> Option<&'static dyn Strategy> {
    Some(match (group, resource) {
        ("", "pods") => &PodStrategy,
        ("", "podtemplates") => &PodTemplateStrategy,
        ("", "replicationcontrollers") => &ReplicationControllerStrategy,
        ("apps", "deployments") => &DeploymentStrategy,
        ("apps", "replicasets") => &ReplicaSetStrategy,
        ("apps", "statefulsets") => in_version!(StatefulSetStrategy, version),
        ("apps", "daemonsets") => &DaemonSetStrategy,
        ("apps", "controllerrevisions") => &ControllerRevisionStrategy,
        ("batch", "jobs") => &JobStrategy,
        ("batch", "cronjobs") => &CronJobStrategy,
        _ => return None,
    })
}
