//! Objects that workers create, and that a server without workers may have from the start.

use super::hash::long_hex;
use crate::api::json::{Value, json};
use crate::api::kubernetes_version::KubernetesVersion;

/// Placeholder for the certificate of the cluster's authority.
pub(super) const CA_BUNDLE: &str = "-----BEGIN CERTIFICATE-----\nZmFrZS1hcGlzZXJ2ZXI=\n-----END CERTIFICATE-----\n";

/// Name of the ConfigMap with the certificate of the cluster's authority.
pub(super) const ROOT_CA: &str = "kube-root-ca.crt";

/// Annotation with a description of an object.
pub(super) const DESCRIPTION: &str = "kubernetes.io/description";

/// Returns the initial objects of a namespace. The ConfigMap contains a placeholder instead of a certificate, because
/// the server does not have an authority for Pods.
pub(crate) fn objects_of_namespace(namespace: &str) -> [Value; 2] {
    let why = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as \
               the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of \
               Kubernetes clusters.";
    [
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace},
        }),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"ca.crt": CA_BUNDLE},
            "metadata": {"name": ROOT_CA, "namespace": namespace, "annotations": {DESCRIPTION: why}},
        }),
    ]
}

/// Last byte of the address of the first node.
const FIRST_ADDRESS: usize = 2;

/// Returns the address of a node by its number.
pub(crate) fn node_address(number: usize) -> String {
    let number = number.saturating_add(FIRST_ADDRESS);
    format!("172.18.{}.{}", (number / 256) % 256, number % 256)
}

/// Returns the `nodeInfo` of a node: details about the machine and its software.
pub(crate) fn node_info(name: &str, version: KubernetesVersion) -> Value {
    let hex = long_hex(&[name]);
    let id = format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..32]
    );
    json!({
        "architecture": "amd64", "bootID": id, "containerRuntimeVersion": "containerd://2.1.4",
        "kernelVersion": "6.12.0", "kubeProxyVersion": "", "kubeletVersion": version.release(), "machineID": &hex[..32],
        "operatingSystem": "linux", "osImage": "Debian GNU/Linux 13 (trixie)", "systemUUID": id,
    })
}
