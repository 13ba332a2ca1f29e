//! `Served`: a built-in resource and the versions of Kubernetes that have it. The generated tables use the functions
//! and macros of this module.

use std::borrow::Cow::{self, Borrowed};

use super::resources::{GROUPS, OPTIONAL, REGISTERED, RESOURCES};
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::resource::{ResourceInfo, Scope, SubresourceInfo, Text};

/// A resource in one version, and the versions of Kubernetes that have it.
#[derive(Debug)]
pub(super) struct Served {
    info: ResourceInfo,
    since: KubernetesVersion,
    /// The first version of Kubernetes without the resource.
    until: Option<KubernetesVersion>,
    /// Set for versions that are disabled by default.
    off: Option<Off>,
}

/// Properties of a resource in a version that is disabled by default.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Off {
    /// The stage of the version, which determines how it is enabled.
    pub(crate) stage: Stage,
    /// The feature gate that the resource depends on, if the gate is disabled by default; otherwise empty.
    pub(crate) gate: &'static str,
    /// The version that defines the fields of stored objects: its own version, unless a newer version has different
    /// fields.
    pub(crate) form: &'static str,
    /// The end of the warning about the version, such as `deprecated in v1.37+, …`. Empty if the version is not
    /// deprecated, now or later.
    pub(crate) lifecycle: &'static str,
}

/// The stage of a version that is disabled by default. It determines how the version is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Alpha versions are enabled by `--runtime-config`, as in kube-apiserver.
    Alpha,
    /// Beta versions are enabled by `--runtime-config`, as in kube-apiserver.
    Beta,
    /// Retired versions are enabled by an option of this server, because Kubernetes no longer serves them.
    Retired,
}

impl Served {
    /// Returns `true` if a version of Kubernetes has the resource.
    fn is_in(&self, version: KubernetesVersion) -> bool {
        self.since <= version && self.until.is_none_or(|until| version < until)
    }
}

/// Returns the built-in resources that a version of Kubernetes serves by default, in the order of discovery.
pub(crate) fn builtins(version: KubernetesVersion) -> impl Iterator<Item = &'static ResourceInfo> {
    RESOURCES.iter().filter(move |it| it.is_in(version)).map(|it| &it.info)
}

/// Returns the resources of a version of Kubernetes that are disabled by default, in the order of discovery.
pub(super) fn off_by_default(version: KubernetesVersion) -> impl Iterator<Item = (&'static ResourceInfo, Off)> {
    let rows = OPTIONAL.iter().filter(move |it| it.is_in(version));
    rows.filter_map(|it| Some((&it.info, it.off?)))
}

/// Returns the position of a built-in group in discovery; `None` for groups of CRDs and aggregated API servers.
pub(crate) fn group_rank(group: &str) -> Option<usize> {
    match group {
        "" => Some(0),
        _ => GROUPS.iter().position(|it| *it == group).map(|at| at + 1),
    }
}

/// Returns `true` if kube-apiserver registers a version of a built-in API, served or not, in a version of Kubernetes.
pub(crate) fn is_registered(in_version: KubernetesVersion, group: &str, version: &str) -> bool {
    versions_of(in_version, group).any(|it| it == version)
}

/// Returns the versions of a group that kube-apiserver registers in a version of Kubernetes, served or not.
pub(crate) fn versions_of(in_version: KubernetesVersion, group: &str) -> impl Iterator<Item = &'static str> {
    let is_in = move |since: KubernetesVersion, until: Option<KubernetesVersion>| {
        since <= in_version && until.is_none_or(|until| in_version < until)
    };
    let of_group = REGISTERED.iter().filter(move |row| row.0 == group);
    of_group.filter(move |row| is_in(row.2, row.3)).map(|row| row.1)
}

/// Returns the built-in resources that at least one supported version of Kubernetes serves by default, in the order of
/// discovery. A resource that has changed between versions has an entry for each state.
pub(crate) fn all_builtins() -> impl Iterator<Item = &'static ResourceInfo> {
    RESOURCES.iter().map(|it| &it.info)
}

// Types, macros and functions for the rows of the generated tables.
pub(super) type Texts = Cow<'static, [Text]>;

macro_rules! texts {
    ($($text:literal),*) => {{
        const TEXTS: &[Text] = &[$(Borrowed($text)),*];
        Borrowed(TEXTS)
    }};
}
pub(super) use texts;

macro_rules! subresources {
    ($($sub:expr),*) => {{
        const SUBRESOURCES: &[SubresourceInfo] = &[$($sub),*];
        SUBRESOURCES
    }};
}
pub(super) use subresources;

pub(super) const NONE: Texts = Borrowed(&[]);
pub(super) const ALL: Texts = texts![
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch"
];

pub(super) const fn sub(name: &'static str, kind: [&'static str; 3], verbs: Texts) -> SubresourceInfo {
    SubresourceInfo {
        name: Borrowed(name),
        group: Borrowed(kind[0]),
        version: Borrowed(kind[1]),
        kind: Borrowed(kind[2]),
        verbs,
    }
}

/// The names of a resource: group, version, resource, singular, kind and list kind.
type Names = [&'static str; 6];

pub(super) const fn row(
    names: Names,
    scope: Scope,
    short_names: Texts,
    categories: Texts,
    verbs: Texts,
    subresources: &'static [SubresourceInfo],
) -> Served {
    let [group, version, resource, singular, kind, list_kind] = names;
    let info = ResourceInfo {
        group: Borrowed(group),
        version: Borrowed(version),
        resource: Borrowed(resource),
        singular: Borrowed(singular),
        kind: Borrowed(kind),
        list_kind: Borrowed(list_kind),
        scope,
        short_names,
        categories,
        verbs,
        stored_version: Some(Borrowed(version)),
        subresources: Borrowed(subresources),
    };
    Served {
        info,
        since: KubernetesVersion::ALL[0],
        until: None,
        off: None,
    }
}

/// Marks a row as disabled by default. The four strings are the gate, the storage version, the version that defines the
/// fields of stored objects, and the end of the warning about the version.
pub(super) const fn optional(
    stage: Stage,
    [gate, stored, form, lifecycle]: [&'static str; 4],
    mut row: Served,
) -> Served {
    row.off = Some(Off {
        stage,
        gate,
        form,
        lifecycle,
    });
    // Values with a destructor cannot be dropped in a constant function.
    std::mem::forget(row.info.stored_version.replace(Borrowed(stored)));
    row
}

/// Limits a row to this version of Kubernetes and later ones.
pub(super) const fn since(version: KubernetesVersion, mut row: Served) -> Served {
    row.since = version;
    row
}

/// Limits a row to versions of Kubernetes before this one.
pub(super) const fn until(version: KubernetesVersion, mut row: Served) -> Served {
    row.until = Some(version);
    row
}
