//! `Resource`: the resources that controllers of workloads read or write, and references to their objects.

use crate::api::object::Object;
use crate::storage::Key;

/// Generates `Resource` from a table: kind, `apiVersion`, and name in storage.
macro_rules! resources {
    ($($kind:ident: $api_version:literal, $storage:literal;)+) => {
        /// A resource that the controllers of workloads read or write.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(clippy::enum_variant_names, reason = "the kind ResourceClaim begins like the enum")]
        pub(crate) enum Resource { $($kind,)+ }

        impl Resource {
            const ALL: &[Self] = &[$(Self::$kind),+];

            /// Returns the kind: `Pod`, `Deployment`, …
            pub(crate) const fn kind(self) -> &'static str {
                match self { $(Self::$kind => stringify!($kind),)+ }
            }

            /// Returns the API version: `v1`, `apps/v1`, …
            pub(crate) const fn api_version(self) -> &'static str {
                match self { $(Self::$kind => $api_version,)+ }
            }

            /// Returns the name in storage: `pods`, `apps/deployments`.
            pub(crate) const fn storage(self) -> &'static str {
                match self { $(Self::$kind => $storage,)+ }
            }
        }
    };
}

resources! {
    Namespace: "v1", "namespaces";
    Node: "v1", "nodes";
    StorageClass: "storage.k8s.io/v1", "storage.k8s.io/storageclasses";
    VolumeAttributesClass: "storage.k8s.io/v1", "storage.k8s.io/volumeattributesclasses";
    PersistentVolume: "v1", "persistentvolumes";
    PersistentVolumeClaim: "v1", "persistentvolumeclaims";
    ServiceAccount: "v1", "serviceaccounts";
    Secret: "v1", "secrets";
    ConfigMap: "v1", "configmaps";
    ControllerRevision: "apps/v1", "apps/controllerrevisions";
    CronJob: "batch/v1", "batch/cronjobs";
    DaemonSet: "apps/v1", "apps/daemonsets";
    Deployment: "apps/v1", "apps/deployments";
    Job: "batch/v1", "batch/jobs";
    ReplicaSet: "apps/v1", "apps/replicasets";
    ReplicationController: "v1", "replicationcontrollers";
    StatefulSet: "apps/v1", "apps/statefulsets";
    Pod: "v1", "pods";
    ResourceClaim: "resource.k8s.io/v1", "resource.k8s.io/resourceclaims";
    ResourceClaimTemplate: "resource.k8s.io/v1", "resource.k8s.io/resourceclaimtemplates";
    Service: "v1", "services";
    ServiceCIDR: "networking.k8s.io/v1", "networking.k8s.io/servicecidrs";
    IPAddress: "networking.k8s.io/v1", "networking.k8s.io/ipaddresses";
    EndpointSlice: "discovery.k8s.io/v1", "discovery.k8s.io/endpointslices";
    Endpoints: "v1", "endpoints";
    HorizontalPodAutoscaler: "autoscaling/v2", "autoscaling/horizontalpodautoscalers";
    PodDisruptionBudget: "policy/v1", "policy/poddisruptionbudgets";
    Lease: "coordination.k8s.io/v1", "coordination.k8s.io/leases";
    Event: "v1", "events";
}

impl Resource {
    /// The resources that controllers read: all except Events, which are only written.
    pub(crate) const WATCHED: &[Self] = match Self::ALL {
        [watched @ .., Self::Event] => watched,
        _ => panic!("Event is not the last resource"),
    };

    /// Returns the resource with this name in storage, if controllers read it.
    pub(crate) fn of_storage(name: &str) -> Option<Self> {
        Self::WATCHED.iter().copied().find(|it| it.storage() == name)
    }

    /// Returns the plural name with the group, such as `jobs.batch`.
    pub(crate) fn plural(self) -> String {
        match self.storage().split_once('/') {
            Some((group, plural)) => format!("{plural}.{group}"),
            None => self.storage().to_owned(),
        }
    }
}

/// The object of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) resource: Resource,
    pub(crate) key: Key,
    /// The uid of the object; a different object with the same name must not be changed.
    pub(crate) uid: String,
}

impl Target {
    /// Returns a reference to an object that was read.
    pub(crate) fn of(resource: Resource, object: &Object) -> Self {
        Self {
            resource,
            key: key_of(object),
            uid: object.uid().to_owned(),
        }
    }
}

/// Returns the key of an object in storage.
pub(crate) fn key_of(object: &Object) -> Key {
    Key::new(object.namespace(), object.name())
}
