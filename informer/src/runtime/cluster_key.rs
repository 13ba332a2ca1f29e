//! `ClusterKey`: the key of an object in one of several clusters.

use std::fmt;
use std::sync::Arc;

use crate::ObjectKey;

/// The key of an object in one of several clusters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKey {
    /// Name under which the cluster was engaged.
    pub cluster: Arc<str>,
    /// Key of the object within the cluster.
    pub key: ObjectKey,
}

impl fmt::Display for ClusterKey {
    /// Formats the key as `cluster/namespace/name`, or `cluster/name` for cluster-scoped objects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.key)
    }
}
