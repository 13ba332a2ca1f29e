//! The fields that are reset in writes of a resource or subresource, and that such writes therefore cannot own
//! (`GetResetFields` of the strategies in `pkg/registry`).

/// Paths of fields, each from the root of the object.
pub(crate) type Paths = &'static [&'static [&'static str]];

const STATUS: Paths = &[&["status"]];
const SPEC: Paths = &[&["spec"]];
const ALL_BUT_STATUS: Paths = &[&["spec"], &["metadata"]];

/// Returns the paths that writes to `subresource` of a resource with a status cannot own.
pub(crate) fn reset_fields(group: &str, resource: &str, subresource: &str) -> Paths {
    match (group, resource, subresource) {
        ("apps", "deployments", "status") => &[&["spec"], &["metadata", "labels"]],
        ("", "pods", "status") => &[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ],
        ("certificates.k8s.io", "podcertificaterequests", "") => &[],
        ("certificates.k8s.io", "certificatesigningrequests", "") => &[&["spec"], &["status"]],
        ("certificates.k8s.io", "certificatesigningrequests", "status") => &[&["spec"], &["status", "conditions"]],
        ("certificates.k8s.io", "certificatesigningrequests", "approval") => &[&["spec"], &["status", "certificate"]],
        (
            "admissionregistration.k8s.io"
            | "apiregistration.k8s.io"
            | "flowcontrol.apiserver.k8s.io"
            | "internal.apiserver.k8s.io"
            | "resource.k8s.io"
            | "scheduling.k8s.io"
            | "storage.k8s.io"
            | "storagemigration.k8s.io",
            _,
            "status",
        )
        | ("networking.k8s.io", "servicecidrs", "status") => ALL_BUT_STATUS,
        (_, _, "status") => SPEC,
        _ => STATUS,
    }
}
