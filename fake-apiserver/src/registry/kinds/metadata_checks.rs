//! Metadata checks of a kind, in addition to the checks that apply to every object. In kube-apiserver, these are calls
//! of `ValidateObjectMeta` and `ValidateObjectMetaUpdate` in `pkg/apis/*/validation` and in the strategies of
//! `pkg/registry`.

/// A pass over the metadata that is part of the validation of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// The checks of `ValidateObjectMeta`.
    Create,
    /// The checks of `ValidateObjectMetaUpdate`.
    Update,
}

/// The metadata checks of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetadataChecks {
    /// The passes on create. If the list is empty, the name only has to be one path segment.
    pub(crate) on_create: &'static [Pass],
    /// The passes on update. Each pass repeats the errors that all passes have in common.
    pub(crate) on_update: &'static [Pass],
    /// Set if finalizers must be standard finalizers or have a domain (`validateKubeFinalizerName` of
    /// `pkg/apis/core/validation`).
    pub(crate) kube_finalizers: bool,
}

const ONCE: &[Pass] = &[Pass::Create];
const UPDATE: &[Pass] = &[Pass::Update];
const BOTH: &[Pass] = &[Pass::Update, Pass::Create];

/// Returns the metadata checks for a resource. Resources in groups that are not built in are treated as custom
/// resources.
pub(crate) fn metadata_checks(group: &str, resource: &str, subresource: &str) -> MetadataChecks {
    let on_update = if matches!(subresource, "" | "finalize" | "ephemeralcontainers" | "resize") {
        update_passes(group, resource)
    } else {
        status_passes(group, resource)
    };
    let on_create: &[Pass] = match (group, resource) {
        ("", "events") | ("policy", _) => &[],
        _ => ONCE,
    };
    MetadataChecks {
        on_create,
        on_update,
        kube_finalizers: has_kube_finalizers(group),
    }
}

fn update_passes(group: &str, resource: &str) -> &'static [Pass] {
    match (group, resource) {
        ("", "events") | ("policy" | "internal.apiserver.k8s.io", _) => &[],
        ("", "limitranges" | "persistentvolumes")
        | ("admissionregistration.k8s.io", _)
        | ("discovery.k8s.io", "endpointslices")
        | ("flowcontrol.apiserver.k8s.io", _)
        | ("storage.k8s.io", "csinodes" | "volumeattachments") => ONCE,
        (
            "",
            "configmaps"
            | "endpoints"
            | "namespaces"
            | "nodes"
            | "persistentvolumeclaims"
            | "pods"
            | "secrets"
            | "serviceaccounts",
        )
        | ("apiregistration.k8s.io", _)
        | ("apps", "controllerrevisions")
        | ("batch", "jobs")
        | ("certificates.k8s.io", "certificatesigningrequests" | "clustertrustbundles")
        | ("networking.k8s.io", "ingresses" | "ingressclasses" | "ipaddresses")
        | ("node.k8s.io", _)
        | ("rbac.authorization.k8s.io", _)
        | ("resource.k8s.io", "deviceclasses" | "resourceclaims" | "resourceclaimtemplates")
        | ("storage.k8s.io", "csistoragecapacities" | "storageclasses" | "volumeattributesclasses")
        | ("storagemigration.k8s.io", _) => BOTH,
        _ => UPDATE,
    }
}

fn status_passes(group: &str, resource: &str) -> &'static [Pass] {
    match (group, resource) {
        (
            "policy" | "admissionregistration.k8s.io" | "flowcontrol.apiserver.k8s.io" | "internal.apiserver.k8s.io",
            _,
        )
        | ("batch", "cronjobs") => &[],
        ("certificates.k8s.io", "certificatesigningrequests") => BOTH,
        ("storage.k8s.io", "volumeattachments") => ONCE,
        _ => UPDATE,
    }
}

fn has_kube_finalizers(group: &str) -> bool {
    matches!(
        group,
        "" | "apps"
            | "autoscaling"
            | "batch"
            | "certificates.k8s.io"
            | "discovery.k8s.io"
            | "events.k8s.io"
            | "flowcontrol.apiserver.k8s.io"
            | "internal.apiserver.k8s.io"
            | "networking.k8s.io"
            | "rbac.authorization.k8s.io"
            | "resource.k8s.io"
            | "scheduling.k8s.io"
            | "storage.k8s.io"
            | "storagemigration.k8s.io"
    )
}
