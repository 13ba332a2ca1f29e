//! `Resource`: the resources that the small cluster life reads or writes, and how an object of one is named.

use crate::api::object::Object;
use crate::storage::Key;

/// A resource of the small cluster life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Resource {
    ConfigMap,
    ControllerRevision,
    CronJob,
    DaemonSet,
    Deployment,
    EndpointSlice,
    Endpoints,
    Event,
    Job,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Secret,
    Service,
    ServiceAccount,
    StatefulSet,
    StorageClass,
}

impl Resource {
    /// Those that are kept in memory, in the order in which they are read at the start.
    pub(crate) const WATCHED: [Self; 21] = [
        Self::Namespace,
        Self::Node,
        Self::StorageClass,
        Self::PersistentVolume,
        Self::PersistentVolumeClaim,
        Self::ServiceAccount,
        Self::Secret,
        Self::ConfigMap,
        Self::ControllerRevision,
        Self::CronJob,
        Self::DaemonSet,
        Self::Deployment,
        Self::Job,
        Self::ReplicaSet,
        Self::ReplicationController,
        Self::StatefulSet,
        Self::Pod,
        Self::Service,
        Self::EndpointSlice,
        Self::Endpoints,
        Self::PodDisruptionBudget,
    ];

    /// Group, version, plural and kind.
    pub(crate) const fn names(self) -> [&'static str; 4] {
        match self {
            Self::ConfigMap => ["", "v1", "configmaps", "ConfigMap"],
            Self::ControllerRevision => ["apps", "v1", "controllerrevisions", "ControllerRevision"],
            Self::CronJob => ["batch", "v1", "cronjobs", "CronJob"],
            Self::DaemonSet => ["apps", "v1", "daemonsets", "DaemonSet"],
            Self::Deployment => ["apps", "v1", "deployments", "Deployment"],
            Self::EndpointSlice => ["discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"],
            Self::Endpoints => ["", "v1", "endpoints", "Endpoints"],
            Self::Event => ["", "v1", "events", "Event"],
            Self::Job => ["batch", "v1", "jobs", "Job"],
            Self::Namespace => ["", "v1", "namespaces", "Namespace"],
            Self::Node => ["", "v1", "nodes", "Node"],
            Self::PersistentVolume => ["", "v1", "persistentvolumes", "PersistentVolume"],
            Self::PersistentVolumeClaim => ["", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"],
            Self::Pod => ["", "v1", "pods", "Pod"],
            Self::PodDisruptionBudget => ["policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"],
            Self::ReplicaSet => ["apps", "v1", "replicasets", "ReplicaSet"],
            Self::ReplicationController => ["", "v1", "replicationcontrollers", "ReplicationController"],
            Self::Secret => ["", "v1", "secrets", "Secret"],
            Self::Service => ["", "v1", "services", "Service"],
            Self::ServiceAccount => ["", "v1", "serviceaccounts", "ServiceAccount"],
            Self::StatefulSet => ["apps", "v1", "statefulsets", "StatefulSet"],
            Self::StorageClass => ["storage.k8s.io", "v1", "storageclasses", "StorageClass"],
        }
    }

    /// The name in storage: `pods`, `apps/deployments`.
    pub(crate) const fn storage(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::ControllerRevision => "apps/controllerrevisions",
            Self::CronJob => "batch/cronjobs",
            Self::DaemonSet => "apps/daemonsets",
            Self::Deployment => "apps/deployments",
            Self::EndpointSlice => "discovery.k8s.io/endpointslices",
            Self::Endpoints => "endpoints",
            Self::Event => "events",
            Self::Job => "batch/jobs",
            Self::Namespace => "namespaces",
            Self::Node => "nodes",
            Self::PersistentVolume => "persistentvolumes",
            Self::PersistentVolumeClaim => "persistentvolumeclaims",
            Self::Pod => "pods",
            Self::PodDisruptionBudget => "policy/poddisruptionbudgets",
            Self::ReplicaSet => "apps/replicasets",
            Self::ReplicationController => "replicationcontrollers",
            Self::Secret => "secrets",
            Self::Service => "services",
            Self::ServiceAccount => "serviceaccounts",
            Self::StatefulSet => "apps/statefulsets",
            Self::StorageClass => "storage.k8s.io/storageclasses",
        }
    }

    /// `Pod`, `Deployment`, …
    pub(crate) const fn kind(self) -> &'static str {
        self.names()[3]
    }

    /// `v1`, `apps/v1`, …
    pub(crate) fn api_version(self) -> String {
        let [group, version, ..] = self.names();
        if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        }
    }

    /// The resource of a name in storage, if it is one of those that are kept in memory.
    pub(crate) fn of_storage(name: &str) -> Option<Self> {
        Self::WATCHED.into_iter().find(|it| it.storage() == name)
    }

    /// The resource of a kind, if it is one of these.
    pub(crate) fn of_kind(kind: &str) -> Option<Self> {
        Self::WATCHED.into_iter().find(|it| it.kind() == kind)
    }
}

/// One object to write to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) resource: Resource,
    pub(crate) key: Key,
    /// The object that is meant; another of the same name is left alone.
    pub(crate) uid: String,
}

impl Target {
    /// An object as it was read.
    pub(crate) fn of(resource: Resource, object: &Object) -> Self {
        Self {
            resource,
            key: Key::new(object.namespace(), object.name()),
            uid: object.uid().to_owned(),
        }
    }
}
