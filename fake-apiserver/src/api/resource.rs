//! Names of resources (group, version, resource, kind), and `ResourceInfo`, a row of the table of served resources.

use std::borrow::Cow;
use std::fmt;

/// A string that is borrowed from the generated table, or owned by the row of a CRD.
pub type Text = Cow<'static, str>;

/// A resource in any version. Its `Display` has the format used in errors: `pods`, `deployments.apps`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupResource {
    /// API group; empty for core.
    pub group: Text,
    /// Plural name.
    pub resource: Text,
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}

/// A kind in any version. Its `Display` has the format used in errors: `Pod`, `Deployment.apps`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind {
    /// API group; empty for core.
    pub group: Text,
    /// Kind.
    pub kind: Text,
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.kind)
        } else {
            write!(f, "{}.{}", self.kind, self.group)
        }
    }
}

/// Scope of a resource: namespaced or cluster-scoped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Each object is in a namespace.
    Namespaced,
    /// Objects are not in namespaces.
    Cluster,
}

/// One served resource in one version: a row of the table that discovery shows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResourceInfo {
    /// API group; empty for core.
    pub group: Text,
    /// Version, such as `v1`.
    pub version: Text,
    /// Plural name, as in paths.
    pub resource: Text,
    /// Singular name, for kubectl.
    pub singular: Text,
    /// Kind of one object.
    pub kind: Text,
    /// Kind of a list, usually `<kind>List`.
    pub list_kind: Text,
    /// Namespaced or cluster-scoped.
    pub scope: Scope,
    /// Short names, for kubectl.
    pub short_names: Cow<'static, [Text]>,
    /// Categories, such as `all`.
    pub categories: Cow<'static, [Text]>,
    /// Verbs of the resource itself, sorted; a virtual resource such as `tokenreviews` has only `create`.
    pub verbs: Cow<'static, [Text]>,
    /// Version in which objects are stored; `None` if a CRD does not serve that version.
    pub stored_version: Option<Text>,
    /// Subresources, sorted by name.
    pub subresources: Cow<'static, [SubresourceInfo]>,
}

/// One subresource of a [`ResourceInfo`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SubresourceInfo {
    /// `status`, `scale`, …
    pub name: Text,
    /// API group of the kind that it accepts and returns, such as `autoscaling` for `scale`; empty for core.
    pub group: Text,
    /// Version of the kind that it accepts and returns.
    pub version: Text,
    /// Kind that it accepts and returns.
    pub kind: Text,
    /// Verbs, sorted.
    pub verbs: Cow<'static, [Text]>,
}

impl ResourceInfo {
    /// Returns group and version as in objects: `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the resource without its version, for errors and storage.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource {
            group: self.group.clone(),
            resource: self.resource.clone(),
        }
    }

    /// Returns the kind without its version, for errors.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind {
            group: self.group.clone(),
            kind: self.kind.clone(),
        }
    }

    /// Returns `true` if the resource has this verb.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|it| it == verb)
    }

    /// Returns the subresource with this name.
    pub fn subresource(&self, name: &str) -> Option<&SubresourceInfo> {
        self.subresources.iter().find(|it| it.name == name)
    }

    /// Returns `true` if the resource is namespaced.
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }
}
