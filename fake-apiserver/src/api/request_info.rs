//! `RequestInfo`: verb, resource and name of a request, from its path and method (rule A26).

use std::sync::Arc;

use super::rbac::Attributes;
use super::resource::Text;

/// Verb of a request, named as in RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// GET of one object.
    Get,
    /// GET of a collection.
    List,
    /// GET of a collection with `watch=true`, or of a path with the legacy `/watch/` prefix.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

impl Verb {
    /// Returns the verb's name in RBAC and discovery.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Request extension with the name of the in-process client.
#[derive(Clone, Debug)]
pub(crate) struct ClientName(pub(crate) Arc<str>);

/// A request for a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestInfo {
    /// Verb of the request.
    pub verb: Verb,
    /// API group; empty for core.
    pub group: Text,
    /// Version.
    pub version: Text,
    /// Plural resource.
    pub resource: Text,
    /// Subresource, such as `status`; empty for the resource itself.
    pub subresource: String,
    /// Namespace; empty for cluster-scoped objects and for requests over all namespaces.
    pub namespace: String,
    /// Name; empty for a collection.
    pub name: String,
}

impl RequestInfo {
    /// Returns the attributes for authorization. A Namespace is in the namespace of its own name.
    pub(crate) fn attributes(&self) -> Attributes<'_> {
        let is_namespace = self.group.is_empty() && self.resource == "namespaces";
        Attributes {
            verb: self.verb.as_str(),
            group: &self.group,
            resource: &self.resource,
            subresource: self.subresource.split('/').next().unwrap_or_default(),
            namespace: if is_namespace { &self.name } else { &self.namespace },
            name: &self.name,
            path: "",
        }
    }
}

/// A parsed path below `/api` or `/apis`, before any lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePath<'a> {
    /// API group; empty for core.
    pub group: &'a str,
    /// Version.
    pub version: &'a str,
    /// Set if the path has the legacy `/watch/` prefix.
    pub legacy_watch: bool,
    /// Namespace; empty if the path does not contain one.
    pub namespace: &'a str,
    /// Plural resource.
    pub resource: &'a str,
    /// Name; empty for a collection.
    pub name: &'a str,
    /// The part of the path after the name, without the slash.
    pub subresource: &'a str,
}

impl<'a> ResourcePath<'a> {
    /// Parses `/api/v1/…` and `/apis/G/V/…`; `None` for other paths, and for paths too short to name a resource.
    pub fn parse(path: &'a str) -> Option<Self> {
        let path = path.strip_suffix('/').unwrap_or(path);
        let (group, rest) = if let Some(rest) = path.strip_prefix("/api/") {
            ("", rest)
        } else {
            path.strip_prefix("/apis/")?.split_once('/')?
        };
        let (version, mut rest) = rest.split_once('/')?;
        let legacy_watch = rest.starts_with("watch/");
        if legacy_watch {
            rest = &rest["watch/".len()..];
        }
        let mut namespace = "";
        if let Some(inside) = rest.strip_prefix("namespaces/")
            && let Some((name, below)) = inside.split_once('/')
            // Below a Namespace, only these two names are subresources (rule A26).
            && !matches!(below, "status" | "finalize")
        {
            (namespace, rest) = (name, below);
            // Without a name, the path is a collection across namespaces.
            if namespace.is_empty() && rest.contains('/') {
                return None;
            }
        }
        let (resource, rest) = rest.split_once('/').unwrap_or((rest, ""));
        let (name, subresource) = rest.split_once('/').unwrap_or((rest, ""));
        if version.is_empty() || resource.is_empty() || (name.is_empty() && !subresource.is_empty()) {
            return None;
        }
        Some(Self {
            group,
            version,
            legacy_watch,
            namespace,
            resource,
            name,
            subresource,
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/api/v1/pods", "|v1||pods||")]
    #[case("/api/v1/namespaces/a/pods/b/status", "|v1|a|pods|b|status")]
    #[case("/api/v1/namespaces", "|v1||namespaces||")]
    #[case("/api/v1/namespaces/a", "|v1||namespaces|a|")]
    #[case("/api/v1/namespaces//pods", "|v1||pods||")]
    #[case("/api/v1/namespaces/a/finalize", "|v1||namespaces|a|finalize")]
    #[case("/apis/apps/v1/namespaces/a/deployments", "apps|v1|a|deployments||")]
    #[case("/apis/apps/v1/watch/deployments", "apps|v1||deployments||")]
    #[case("/api/v1/namespaces/a/services/b/proxy/x/y", "|v1|a|services|b|proxy/x/y")]
    fn resource_path_is_split_into_its_parts(#[case] path: &str, #[case] want: &str) {
        let it = ResourcePath::parse(path).expect("the path is a resource path");
        let got = [it.group, it.version, it.namespace, it.resource, it.name, it.subresource].join("|");
        assert_eq!(got, want);
    }

    #[rstest]
    #[case("/api/v1")]
    #[case("/apis/apps")]
    #[case("/apis/apps/v1")]
    #[case("/healthz")]
    #[case("/apis/apps/v1/namespaces//pods/a")]
    #[case("")]
    fn discovery_health_and_malformed_paths_are_not_resource_paths(#[case] path: &str) {
        assert_eq!(ResourcePath::parse(path), None);
    }
}
