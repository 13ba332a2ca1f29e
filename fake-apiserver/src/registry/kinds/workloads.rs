//! Which strategy a resource with pods in it has.

use super::deployment::DeploymentStrategy;
use super::pod::PodStrategy;
use super::replica_set::ReplicaSetStrategy;
use crate::registry::strategy::Strategy;

/// The strategy of Pods and of the resources that make them; `None` for all others.
pub(crate) fn workload_strategy(group: &str, resource: &str) -> Option<&'static dyn Strategy> {
    Some(match (group, resource) {
        ("", "pods") => &PodStrategy,
        ("apps", "deployments") => &DeploymentStrategy,
        ("apps", "replicasets") => &ReplicaSetStrategy,
        _ => return None,
    })
}
