//! `OptionalVersion`: a version of a built-in API that is off by default and has the types of a stable one: a beta
//! version, or a version that Kubernetes no longer serves. Objects are stored once and are available in both versions.

use std::borrow::Cow::Borrowed;
use std::sync::OnceLock;

use super::served::all_builtins;
use crate::api::kubernetes_version::KubernetesVersion::{self, V1_33, V1_34, V1_36, V1_37};
use crate::api::resource::ResourceInfo;

/// A version that can be enabled.
#[derive(Debug)]
pub(crate) struct OptionalVersion {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    /// The stable version with the same types.
    pub(crate) of: &'static str,
    resources: &'static [&'static str],
    pub(crate) stage: Stage,
    since: KubernetesVersion,
    /// The first version of Kubernetes without it.
    until: Option<KubernetesVersion>,
}

/// The way in which a version is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// By `--runtime-config`, as in kube-apiserver.
    Beta,
    /// By an option of this server; all served versions of Kubernetes have removed it.
    Retired,
}

const fn beta(
    [group, version]: [&'static str; 2],
    resources: &'static [&'static str],
    since: KubernetesVersion,
    until: Option<KubernetesVersion>,
) -> OptionalVersion {
    OptionalVersion {
        group,
        version,
        of: "v1",
        resources,
        stage: Stage::Beta,
        since,
        until,
    }
}

const fn retired([group, version, of]: [&'static str; 3], resources: &'static [&'static str]) -> OptionalVersion {
    OptionalVersion {
        group,
        version,
        of,
        resources,
        stage: Stage::Retired,
        since: V1_33,
        until: None,
    }
}

/// All optional versions. Their types were compared with the types of the stable version, field by field, in
/// `k8s.io/api`.
static OPTIONAL: [OptionalVersion; 7] = [
    beta(
        ["admissionregistration.k8s.io", "v1beta1"],
        &["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"],
        V1_36,
        None,
    ),
    beta(
        ["networking.k8s.io", "v1beta1"],
        &["ipaddresses", "servicecidrs"],
        V1_33,
        Some(V1_37),
    ),
    beta(
        ["resource.k8s.io", "v1beta2"],
        &[
            "deviceclasses",
            "resourceclaims",
            "resourceclaimtemplates",
            "resourceslices",
        ],
        V1_34,
        None,
    ),
    beta(
        ["storage.k8s.io", "v1beta1"],
        &["volumeattributesclasses"],
        V1_34,
        Some(V1_37),
    ),
    retired(["autoscaling", "v2beta2", "v2"], &["horizontalpodautoscalers"]),
    retired(["batch", "v1beta1", "v1"], &["cronjobs"]),
    retired(["policy", "v1beta1", "v1"], &["poddisruptionbudgets"]),
];

/// The versions that can be enabled in a version of Kubernetes.
pub(crate) fn optional_versions(of: KubernetesVersion) -> impl Iterator<Item = &'static OptionalVersion> {
    let is_there = move |it: &&OptionalVersion| it.since <= of && it.until.is_none_or(|until| of < until);
    OPTIONAL.iter().filter(is_there)
}

/// Returns the version that has the same types; `None` for versions that are served by default.
pub(crate) fn stable_version(group: &str, version: &str) -> Option<&'static str> {
    let mut all = OPTIONAL.iter();
    let found = all.find(|it| it.group == group && it.version == version);
    found.map(|it| it.of)
}

/// The resources of all optional versions in a version of Kubernetes.
pub(crate) fn optional_resources(of: KubernetesVersion) -> &'static [(&'static OptionalVersion, ResourceInfo)] {
    static ALL: [OnceLock<Vec<(&'static OptionalVersion, ResourceInfo)>>; KubernetesVersion::ALL.len()] =
        [const { OnceLock::new() }; KubernetesVersion::ALL.len()];
    ALL[of as usize].get_or_init(|| {
        let resources = |it: &'static OptionalVersion| it.resources.iter().filter_map(move |name| renamed(it, name));
        optional_versions(of).flat_map(resources).collect()
    })
}

/// A stable resource under the name of another version.
fn renamed(version: &'static OptionalVersion, resource: &str) -> Option<(&'static OptionalVersion, ResourceInfo)> {
    let is_it = |it: &&ResourceInfo| it.group == version.group && it.version == version.of && it.resource == resource;
    // The last form of a resource that has changed is the newest.
    let mut info = all_builtins().filter(is_it).last()?.clone();
    info.version = Borrowed(version.version);
    for sub in info.subresources.to_mut() {
        if sub.group == version.group && sub.version == version.of {
            sub.version = Borrowed(version.version);
        }
    }
    Some((version, info))
}
