//! `OptionalResource`: a built-in resource in an alpha or beta version, or in a version that Kubernetes no longer
//! serves. Such versions are disabled by default. All versions of a resource share its stored objects.

use std::borrow::Cow::Borrowed;
use std::sync::OnceLock;

use super::served::{Off, Stage, all_builtins, off_by_default};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::resource::ResourceInfo;

/// A resource in a version that is disabled by default.
#[derive(Debug)]
pub(crate) struct OptionalResource {
    pub(crate) info: ResourceInfo,
    pub(crate) off: Off,
    /// The version that defines the types of the resource: the stable version for retired versions, otherwise its own
    /// version.
    pub(crate) types: &'static str,
}

/// A version that Kubernetes no longer serves.
struct Retired {
    group: &'static str,
    version: &'static str,
    /// The stable version with the same types.
    of: &'static str,
    resources: &'static [&'static str],
}

const fn retired([group, version, of]: [&'static str; 3], resources: &'static [&'static str]) -> Retired {
    Retired {
        group,
        version,
        of,
        resources,
    }
}

/// All retired versions. Their types in `k8s.io/api` were compared with the stable types, field by field.
static RETIRED: [Retired; 3] = [
    retired(["autoscaling", "v2beta2", "v2"], &["horizontalpodautoscalers"]),
    retired(["batch", "v1beta1", "v1"], &["cronjobs"]),
    retired(["policy", "v1beta1", "v1"], &["poddisruptionbudgets"]),
];

/// Returns the names of the retired versions, such as `batch/v1beta1`.
pub(crate) fn retired_versions() -> impl Iterator<Item = String> {
    RETIRED.iter().map(|it| format!("{}/{}", it.group, it.version))
}

/// Returns the stable version with the types of a retired version; `None` for other versions.
pub(crate) fn stable_version(group: &str, version: &str) -> Option<&'static str> {
    let mut all = RETIRED.iter();
    let found = all.find(|it| it.group == group && it.version == version);
    found.map(|it| it.of)
}

/// Returns the resources of a version of Kubernetes that are disabled by default, in the order of discovery.
pub(crate) fn optional_resources(of: KubernetesVersion) -> &'static [OptionalResource] {
    static ALL: [OnceLock<Vec<OptionalResource>>; KubernetesVersion::ALL.len()] =
        [const { OnceLock::new() }; KubernetesVersion::ALL.len()];
    ALL[of as usize].get_or_init(|| {
        let generated = off_by_default(of).map(|(info, off)| OptionalResource {
            info: info.clone(),
            off,
            types: &info.version,
        });
        let resources = |it: &'static Retired| it.resources.iter().filter_map(move |name| renamed(it, name));
        generated.chain(RETIRED.iter().flat_map(resources)).collect()
    })
}

/// Creates the resource in a retired version from the stable resource.
fn renamed(retired: &Retired, resource: &str) -> Option<OptionalResource> {
    let is_it = |it: &&ResourceInfo| it.group == retired.group && it.version == retired.of && it.resource == resource;
    // The resources in `RETIRED` have a single entry in the stable version.
    let mut info = all_builtins().filter(is_it).last()?.clone();
    info.version = Borrowed(retired.version);
    for sub in info.subresources.to_mut() {
        if sub.group == retired.group && sub.version == retired.of {
            sub.version = Borrowed(retired.version);
        }
    }
    let off = Off {
        stage: Stage::Retired,
        gate: "",
        form: retired.of,
        lifecycle: "",
    };
    Some(OptionalResource {
        info,
        off,
        types: retired.of,
    })
}
