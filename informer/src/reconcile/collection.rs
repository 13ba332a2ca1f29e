//! `Collection`: identifies a resource in a cluster.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use kube::Resource;

/// A resource in a cluster. The caches of this resource receive all writes to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Collection {
    /// `None` for the controller's own cluster.
    cluster: Option<ClusterId>,
    /// Group and plural: `apps/deployments`, or `/pods` for the core group.
    resource: String,
}

impl Collection {
    pub(crate) fn new(cluster: Option<ClusterId>, group: &str, plural: &str) -> Self {
        Self {
            cluster,
            resource: format!("{group}/{plural}"),
        }
    }

    /// Returns the collection of a type.
    pub(crate) fn of<K: Resource>(cluster: Option<ClusterId>, resource: &K::DynamicType) -> Self {
        Self::new(cluster, &K::group(resource), &K::plural(resource))
    }

    /// Returns group and plural: `apps/deployments`, or `/pods` for the core group.
    pub(crate) fn resource(&self) -> &str {
        &self.resource
    }
}

impl fmt::Display for Collection {
    /// Formats as `pods`, or `apps/deployments of cluster east`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource.trim_start_matches('/'))?;
        match &self.cluster {
            Some(ClusterId(name)) => write!(f, " of cluster {name}"),
            None => Ok(()),
        }
    }
}

/// Identifies an engaged cluster. Clones are equal. If a cluster is engaged again under the same name, it gets a new
/// id, because it may be a different server with different versions.
#[derive(Clone, Debug)]
pub(crate) struct ClusterId(Arc<str>);

impl ClusterId {
    pub(crate) fn new(name: &Arc<str>) -> Self {
        Self(Arc::clone(name))
    }
}

impl PartialEq for ClusterId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ClusterId {}

impl Hash for ClusterId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}
