//! Strategies of built-in resources.

use crate::api::kubernetes_version::KubernetesVersion;
use crate::registry::kinds::facts::{Facts, Generation};
use crate::registry::kinds::horizontal_pod_autoscaler::HorizontalPodAutoscaler;
use crate::registry::kinds::plain::Plain;
use crate::registry::kinds::stateful_set::StatefulSetStrategy;
use crate::registry::kinds::strategy::Strategy;
use crate::registry::kinds::{
    admission_policy, api_service, certificate, config_map, csi_driver, csi_node, csi_storage_capacity, device,
    device_claim, endpoint_slice, endpoints, event, flow_control, ingress, ingress_class, lease, limit_range,
    namespace, network_policy, node, persistent_volume, persistent_volume_claim, pod_disruption_budget, priority_class,
    resource_quota, resource_slice, role, role_binding, runtime_class, secret, service, service_account,
    service_network, storage_class, volume, webhook_configuration, workloads,
};

/// The strategy of a built-in resource in a version of Kubernetes.
pub(super) fn strategy_in(version: KubernetesVersion, group: &str, resource: &str) -> &'static dyn Strategy {
    match (version, group) {
        (KubernetesVersion::V1_37, "autoscaling") => &HorizontalPodAutoscaler {
            version: KubernetesVersion::V1_37,
        },
        (KubernetesVersion::V1_37, "apps") if resource == "statefulsets" => &StatefulSetStrategy {
            version: KubernetesVersion::V1_37,
        },
        (KubernetesVersion::V1_37, "storage.k8s.io") if resource == "csidrivers" => &csi_driver::CsiDriver {
            version: KubernetesVersion::V1_37,
        },
        (KubernetesVersion::V1_36 | KubernetesVersion::V1_37, _) => strategy(group, resource),
    }
}

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
        "autoscaling" => &HorizontalPodAutoscaler {
            version: KubernetesVersion::V1_36,
        },
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
            "resourceclaims" => &device_claim::ResourceClaim,
            "resourceclaimtemplates" => &device_claim::ResourceClaimTemplate,
            "deviceclasses" => &device::DeviceClass,
            "devicetaintrules" => &GENERATED_RETURNED,
            "resourcepoolstatusrequests" => &CONDITIONAL_RETURNED,
            _ => &RETURNED,
        },
        "scheduling.k8s.io" => match resource {
            "priorityclasses" => &priority_class::PriorityClass,
            _ => &PLAIN,
        },
        "storage.k8s.io" => match resource {
            "storageclasses" => &storage_class::StorageClass,
            "csidrivers" => &csi_driver::CsiDriver {
                version: KubernetesVersion::V1_36,
            },
            "csinodes" => &csi_node::CsiNode,
            "volumeattachments" => &volume::VolumeAttachment,
            "volumeattributesclasses" => &volume::VolumeAttributesClass,
            "csistoragecapacities" => &csi_storage_capacity::CsiStorageCapacity,
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
        "clustertrustbundles" => &CLUSTER_TRUST_BUNDLE,
        _ => &POD_CERTIFICATE_REQUEST,
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
static GENERATED_RETURNED: Plain = Plain(Facts {
    generation: Generation::FromCreate,
    returns_deleted_object: true,
    ..Facts::DEFAULT
});
static CONDITIONAL_RETURNED: Plain = Plain(Facts {
    allows_unconditional_update: false,
    returns_deleted_object: true,
    ..Facts::DEFAULT
});
static CLUSTER_TRUST_BUNDLE: Plain = Plain(certificate::signed(&["spec.signerName"], false));
static POD_CERTIFICATE_REQUEST: Plain = Plain(certificate::signed(
    &["spec.signerName", "spec.podName", "spec.nodeName"],
    true,
));
