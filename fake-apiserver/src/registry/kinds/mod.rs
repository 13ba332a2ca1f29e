//! One strategy a built-in kind that needs one. It knows objects and nothing of storage or HTTP.

pub(crate) mod names;
pub(crate) mod labels;
pub(crate) mod access;
pub(crate) mod plain;
pub(crate) mod namespace;
pub(crate) mod config_map;
pub(crate) mod secret;
pub(crate) mod net;
pub(crate) mod service;
pub(crate) mod service_account;
pub(crate) mod node;
pub(crate) mod endpoints;
pub(crate) mod endpoint_slice;
pub(crate) mod lease;
pub(crate) mod role;
pub(crate) mod role_binding;
pub(crate) mod persistent_volume_claim;
pub(crate) mod persistent_volume;
pub(crate) mod limit_range;
pub(crate) mod resource_quota;
pub(crate) mod pod_disruption_budget;
pub(crate) mod event;

use crate::registry::strategy::Strategy;
use plain::{CONDITIONAL, GENERATED, PLAIN, Plain, RETURNED};

/// The strategy of a built-in resource; most need nothing but the defaults.
pub(crate) fn strategy(group: &str, resource: &str) -> &'static dyn Strategy {
    match group {
        "" => core(resource),
        "admissionregistration.k8s.io" => &GENERATED_CONDITIONAL,
        "apiregistration.k8s.io" => &CONDITIONAL,
        "certificates.k8s.io" => match resource {
            "certificatesigningrequests" => &PLAIN,
            _ => &CONDITIONAL,
        },
        "coordination.k8s.io" => match resource {
            "leases" => &lease::Lease,
            _ => &lease::LeaseCandidate,
        },
        "discovery.k8s.io" => &endpoint_slice::EndpointSlice,
        "flowcontrol.apiserver.k8s.io" => &GENERATED,
        "events.k8s.io" => &event::Event { is_new: true },
        "internal.apiserver.k8s.io" | "storagemigration.k8s.io" => &CONDITIONAL,
        "networking.k8s.io" => match resource {
            "ingresses" | "ingressclasses" | "networkpolicies" => &GENERATED,
            _ => &PLAIN,
        },
        "node.k8s.io" => &CREATED_CONDITIONAL,
        "policy" => &pod_disruption_budget::PodDisruptionBudget,
        "rbac.authorization.k8s.io" => match resource {
            "roles" => &role::Role { is_cluster: false },
            "clusterroles" => &role::Role { is_cluster: true },
            "rolebindings" => &role_binding::RoleBinding { is_cluster: false },
            _ => &role_binding::RoleBinding { is_cluster: true },
        },
        "resource.k8s.io" => match resource {
            "deviceclasses" | "resourceslices" | "devicetaintrules" => &GENERATED_RETURNED,
            "resourcepoolstatusrequests" => &CONDITIONAL_RETURNED,
            _ => &RETURNED,
        },
        "scheduling.k8s.io" => match resource {
            "priorityclasses" => &GENERATED,
            _ => &PLAIN,
        },
        "storage.k8s.io" => match resource {
            "csidrivers" | "csinodes" | "volumeattachments" => &CONDITIONAL_RETURNED,
            "csistoragecapacities" => &CONDITIONAL,
            _ => &RETURNED,
        },
        _ => &PLAIN,
    }
}

fn core(resource: &str) -> &'static dyn Strategy {
    match resource {
        "namespaces" => &namespace::Namespace,
        "configmaps" => &config_map::ConfigMap,
        "secrets" => &secret::Secret,
        "nodes" => &node::Node,
        "endpoints" => &endpoints::Endpoints,
        "serviceaccounts" => &service_account::ServiceAccount,
        "events" => &event::Event { is_new: false },
        "limitranges" => &limit_range::LimitRange,
        "services" => &service::Service,
        "persistentvolumes" => &persistent_volume::PersistentVolume,
        "persistentvolumeclaims" => &persistent_volume_claim::PersistentVolumeClaim,
        "resourcequotas" => &resource_quota::ResourceQuota,
        _ => &PLAIN,
    }
}

static CREATED_CONDITIONAL: Plain = Plain {
    create_on_update: true,
    ..CONDITIONAL
};
static GENERATED_CONDITIONAL: Plain = Plain {
    generation: true,
    ..CONDITIONAL
};
static GENERATED_RETURNED: Plain = Plain {
    generation: true,
    ..RETURNED
};
static CONDITIONAL_RETURNED: Plain = Plain {
    returns_deleted: true,
    ..CONDITIONAL
};
