//! `ClusterKey`: the key of an object in one of several clusters.

use std::fmt;
use std::sync::Arc;

use crate::ObjectKey;

/// An object of one of several clusters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKey {
    /// The name under which the cluster was engaged.
    pub cluster: Arc<str>,
    /// The object in that cluster.
    pub key: ObjectKey,
}

impl fmt::Display for ClusterKey {
    /// `cluster/namespace/name`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.key)
    }
}
