//! One strategy a built-in kind that needs one. It knows objects and nothing of storage or HTTP.

pub(crate) mod names;
pub(crate) mod view;
pub(crate) mod check;
pub(crate) mod pod;
pub(crate) mod workload_rules;
pub(crate) mod deployment;
pub(crate) mod replica_set;
pub(crate) mod stateful_set;
pub(crate) mod daemon_set;
pub(crate) mod job;
pub(crate) mod job_policies;
pub(crate) mod job_status;
pub(crate) mod cron_job;
pub(crate) mod cron;
pub(crate) mod pod_template;
pub(crate) mod workloads;
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
pub(crate) mod horizontal_pod_autoscaler;
pub(crate) mod ingress;
pub(crate) mod ingress_class;
pub(crate) mod network_policy;
pub(crate) mod storage_class;
pub(crate) mod csi_driver;
pub(crate) mod priority_class;
pub(crate) mod runtime_class;
pub(crate) mod certificate;
pub(crate) mod resource_slice;
pub(crate) mod webhook_configuration;
pub(crate) mod admission_policy;
pub(crate) mod flow_control;
pub(crate) mod api_service;
pub(crate) mod volume;

use crate::registry::strategy::Strategy;
use plain::{CONDITIONAL, PLAIN, Plain, RETURNED};

/// The strategy of a built-in resource; most need nothing but the defaults.
pub(crate) fn strategy(group: &str, resource: &str) -> &'static dyn Strategy {
    if let Some(strategy) = workloads::workload_strategy(group, resource) {
        return strategy;
    }
    match group {
        "" => core(resource),
        "admissionregistration.k8s.io" => admission(resource),
        "apiextensions.k8s.io" => &crate::registry::custom::crd::CrdStrategy,
        "apiregistration.k8s.io" => &api_service::ApiService,
        "autoscaling" => &horizontal_pod_autoscaler::HorizontalPodAutoscaler,
        "certificates.k8s.io" => certificates(resource),
        "coordination.k8s.io" => match resource {
            "leases" => &lease::Lease,
            _ => &lease::LeaseCandidate,
        },
        "discovery.k8s.io" => &endpoint_slice::EndpointSlice,
        "events.k8s.io" => &event::Event { is_new: true },
        "flowcontrol.apiserver.k8s.io" => match resource {
            "flowschemas" => &flow_control::FlowSchema,
            _ => &flow_control::PriorityLevelConfiguration,
        },
        "internal.apiserver.k8s.io" | "storagemigration.k8s.io" => &CONDITIONAL,
        "networking.k8s.io" => match resource {
            "ingresses" => &ingress::Ingress,
            "ingressclasses" => &ingress_class::IngressClass,
            "networkpolicies" => &network_policy::NetworkPolicy,
            _ => &PLAIN,
        },
        "node.k8s.io" => &runtime_class::RuntimeClass,
        "policy" => &pod_disruption_budget::PodDisruptionBudget,
        "rbac.authorization.k8s.io" => match resource {
            "roles" => &role::Role { is_cluster: false },
            "clusterroles" => &role::Role { is_cluster: true },
            "rolebindings" => &role_binding::RoleBinding { is_cluster: false },
            _ => &role_binding::RoleBinding { is_cluster: true },
        },
        "resource.k8s.io" => match resource {
            "resourceslices" => &resource_slice::ResourceSlice,
            "deviceclasses" | "devicetaintrules" => &GENERATED_RETURNED,
            "resourcepoolstatusrequests" => &CONDITIONAL_RETURNED,
            _ => &RETURNED,
        },
        "scheduling.k8s.io" => match resource {
            "priorityclasses" => &priority_class::PriorityClass,
            _ => &PLAIN,
        },
        "storage.k8s.io" => match resource {
            "storageclasses" => &storage_class::StorageClass,
            "csidrivers" => &csi_driver::CsiDriver,
            "csinodes" => &CONDITIONAL_RETURNED,
            "volumeattachments" => &volume::VolumeAttachment,
            "volumeattributesclasses" => &volume::VolumeAttributesClass,
            "csistoragecapacities" => &CONDITIONAL,
            _ => &RETURNED,
        },
        _ => &PLAIN,
    }
}

fn admission(resource: &str) -> &'static dyn Strategy {
    match resource {
        "mutatingadmissionpolicybindings" => &admission_policy::AdmissionPolicyBinding { is_mutating: true },
        "validatingadmissionpolicybindings" => &admission_policy::AdmissionPolicyBinding { is_mutating: false },
        "mutatingadmissionpolicies" => &admission_policy::AdmissionPolicy { is_mutating: true },
        "validatingadmissionpolicies" => &admission_policy::AdmissionPolicy { is_mutating: false },
        "mutatingwebhookconfigurations" => &webhook_configuration::WebhookConfiguration { is_mutating: true },
        _ => &webhook_configuration::WebhookConfiguration { is_mutating: false },
    }
}

fn certificates(resource: &str) -> &'static dyn Strategy {
    match resource {
        "certificatesigningrequests" => &certificate::CertificateSigningRequest,
        "clustertrustbundles" => &certificate::Signed {
            labels: &["spec.signerName"],
            is_namespaced: false,
        },
        _ => &certificate::Signed {
            labels: &["spec.signerName", "spec.podName", "spec.nodeName"],
            is_namespaced: true,
        },
    }
}

fn core(resource: &str) -> &'static dyn Strategy {
    match resource {
        "namespaces" => &namespace::Namespace,
        "componentstatuses" => &COMPONENT_STATUS,
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

static COMPONENT_STATUS: Plain = Plain {
    deprecation: Some("v1 ComponentStatus is deprecated in v1.19+"),
    ..PLAIN
};
static GENERATED_RETURNED: Plain = Plain {
    generation: true,
    ..RETURNED
};
static CONDITIONAL_RETURNED: Plain = Plain {
    returns_deleted: true,
    ..CONDITIONAL
};

#[cfg(test)]
mod workload_tests;
#[cfg(test)]
mod tests;
