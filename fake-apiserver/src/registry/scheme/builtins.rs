//! Strategies of built-in resources.

use crate::api::kubernetes_version::KubernetesVersion;
use crate::registry::custom::crd::CrdStrategy;
use crate::registry::kinds::admission_policy::{AdmissionPolicy, AdmissionPolicyBinding};
use crate::registry::kinds::csi_driver::CsiDriver;
use crate::registry::kinds::csi_node::CsiNode;
use crate::registry::kinds::device::DeviceClass;
use crate::registry::kinds::device_claim::{ResourceClaim, ResourceClaimTemplate};
use crate::registry::kinds::facts::Facts;
use crate::registry::kinds::horizontal_pod_autoscaler::HorizontalPodAutoscaler;
use crate::registry::kinds::ingress::Ingress;
use crate::registry::kinds::plain::Plain;
use crate::registry::kinds::pod_certificate::PodCertificateRequest;
use crate::registry::kinds::service::Service;
use crate::registry::kinds::strategy::{Strategy, in_version};
use crate::registry::kinds::webhook_configuration::WebhookConfiguration;
use crate::registry::kinds::{
    api_service, certificate, config_map, csi_storage_capacity, device_taint_rule, endpoint_slice, endpoints, event,
    flow_control, ingress_class, lease, limit_range, namespace, network_policy, node, persistent_volume,
    persistent_volume_claim, pod_disruption_budget, pod_group, pool_status_request, priority_class, resource_quota,
    resource_slice, role, role_binding, runtime_class, secret, service_account, service_network, storage_class,
    storage_version, trust_bundle, volume, workloads,
};

/// Returns the strategy of a built-in resource in the default version of Kubernetes.
pub(crate) fn strategy(group: &str, resource: &str) -> &'static dyn Strategy {
    strategy_in(KubernetesVersion::default(), group, resource)
}

/// Returns the strategy of a built-in resource in a version of Kubernetes. Many kinds use the default strategy.
pub(super) fn strategy_in(version: KubernetesVersion, group: &str, resource: &str) -> &'static dyn Strategy {
    if let Some(strategy) = workloads::workload_strategy(version, group, resource) {
        return strategy;
    }
    match group {
        "" => core(version, resource),
        "admissionregistration.k8s.io" => admission(version, resource),
        "apiextensions.k8s.io" => in_version!(CrdStrategy, version),
        "apiregistration.k8s.io" => &api_service::ApiService,
        "autoscaling" => in_version!(HorizontalPodAutoscaler, version),
        "certificates.k8s.io" => certificates(version, resource),
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
        "internal.apiserver.k8s.io" => &storage_version::StorageVersion,
        // Older versions of the kind have different fields.
        "storagemigration.k8s.io" if version < KubernetesVersion::V1_35 => &CONDITIONAL,
        "storagemigration.k8s.io" => &storage_version::StorageVersionMigration,
        "networking.k8s.io" => match resource {
            "ingresses" => in_version!(Ingress, version),
            "ingressclasses" => &ingress_class::IngressClass,
            "networkpolicies" => &network_policy::NetworkPolicy,
            "ipaddresses" => &service_network::IpAddress,
            "servicecidrs" => &service_network::ServiceCidr,
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
            "resourceclaims" => in_version!(ResourceClaim, version),
            "resourceclaimtemplates" => in_version!(ResourceClaimTemplate, version),
            "deviceclasses" => in_version!(DeviceClass, version),
            "devicetaintrules" => &device_taint_rule::DeviceTaintRule,
            "resourcepoolstatusrequests" => &pool_status_request::ResourcePoolStatusRequest,
            _ => &RETURNED,
        },
        "scheduling.k8s.io" => match resource {
            "priorityclasses" => &priority_class::PriorityClass,
            // In other versions of Kubernetes, these kinds have different fields.
            "workloads" if version == KubernetesVersion::V1_36 => &pod_group::Workload,
            "podgroups" if version == KubernetesVersion::V1_36 => &pod_group::PodGroup,
            _ => &PLAIN,
        },
        "storage.k8s.io" => match resource {
            "storageclasses" => &storage_class::StorageClass,
            "csidrivers" => in_version!(CsiDriver, version),
            "csinodes" => in_version!(CsiNode, version),
            "volumeattachments" => &volume::VolumeAttachment,
            "volumeattributesclasses" => &volume::VolumeAttributesClass,
            "csistoragecapacities" => &csi_storage_capacity::CsiStorageCapacity,
            _ => &RETURNED,
        },
        _ => &PLAIN,
    }
}

fn admission(version: KubernetesVersion, resource: &str) -> &'static dyn Strategy {
    match resource {
        "mutatingadmissionpolicybindings" => in_version!(AdmissionPolicyBinding { is_mutating: true }, version),
        "validatingadmissionpolicybindings" => in_version!(AdmissionPolicyBinding { is_mutating: false }, version),
        "mutatingadmissionpolicies" => in_version!(AdmissionPolicy { is_mutating: true }, version),
        "validatingadmissionpolicies" => in_version!(AdmissionPolicy { is_mutating: false }, version),
        "mutatingwebhookconfigurations" => in_version!(WebhookConfiguration { is_mutating: true }, version),
        _ => in_version!(WebhookConfiguration { is_mutating: false }, version),
    }
}

fn certificates(version: KubernetesVersion, resource: &str) -> &'static dyn Strategy {
    match resource {
        "certificatesigningrequests" => &certificate::CertificateSigningRequest,
        "clustertrustbundles" => &trust_bundle::ClusterTrustBundle,
        // In earlier versions of Kubernetes, the kind has different fields.
        _ if version < KubernetesVersion::V1_36 => &POD_CERTIFICATE_REQUEST,
        _ => in_version!(PodCertificateRequest, version),
    }
}

fn core(version: KubernetesVersion, resource: &str) -> &'static dyn Strategy {
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
        "services" => in_version!(Service, version),
        "persistentvolumes" => &persistent_volume::PersistentVolume,
        "persistentvolumeclaims" => &persistent_volume_claim::PersistentVolumeClaim,
        "resourcequotas" => &resource_quota::ResourceQuota,
        _ => &PLAIN,
    }
}

static PLAIN: Plain = Plain(Facts::DEFAULT);
static CONDITIONAL: Plain = Plain(Facts {
    allows_unconditional_update: false,
    ..Facts::DEFAULT
});
static RETURNED: Plain = Plain(Facts {
    returns_deleted_object: true,
    ..Facts::DEFAULT
});
static COMPONENT_STATUS: Plain = Plain(Facts {
    deprecation: Some("v1 ComponentStatus is deprecated in v1.19+"),
    ..Facts::DEFAULT
});
static POD_CERTIFICATE_REQUEST: Plain = Plain(certificate::signed(
    &["spec.signerName", "spec.podName", "spec.nodeName"],
    true,
));
