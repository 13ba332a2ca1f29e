//! `Served`: a built-in resource and the versions of Kubernetes that have it. The generated rows are created here.

use std::borrow::Cow::{self, Borrowed};

use super::resources::RESOURCES;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::api::resource::{ResourceInfo, Scope, SubresourceInfo, Text};

/// A resource in one version, and the versions of Kubernetes that serve it by default.
#[derive(Debug)]
pub(super) struct Served {
    info: ResourceInfo,
    since: KubernetesVersion,
    /// The first version without it.
    until: Option<KubernetesVersion>,
}

/// Returns the built-in resources that a version of Kubernetes serves by default, in the order of discovery.
pub(crate) fn builtins(version: KubernetesVersion) -> impl Iterator<Item = &'static ResourceInfo> {
    let is_served = move |it: &&Served| it.since <= version && it.until.is_none_or(|until| version < until);
    RESOURCES.iter().filter(is_served).map(|it| &it.info)
}

/// Returns the built-in resources of all versions of Kubernetes, in the order of discovery. A resource that has changed
/// is included in each of its forms.
pub(crate) fn all_builtins() -> impl Iterator<Item = &'static ResourceInfo> {
    RESOURCES.iter().map(|it| &it.info)
}

// Types and macros of the rows of the generated table.
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

/// Group, version, resource, singular, kind, list kind.
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
    }
}

/// The row from a version on.
pub(super) const fn since(version: KubernetesVersion, mut row: Served) -> Served {
    row.since = version;
    row
}

/// The row, for all versions before this one.
pub(super) const fn until(version: KubernetesVersion, mut row: Served) -> Served {
    row.until = Some(version);
    row
}
