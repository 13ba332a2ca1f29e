//! `Ordered`: formats discovery documents as JSON, with keys in the order of Go's struct fields.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::api::json::{Map, Value};

/// The top-level fields of documents: `APIVersions`, `APIGroupList`, `APIGroup`, `APIResourceList`,
/// `APIGroupDiscoveryList`, `version.Info`, and the OpenID Connect document.
const ROOT: &[&str] = &[
    "kind",
    "apiVersion",
    "metadata",
    "groupVersion",
    "name",
    "versions",
    "preferredVersion",
    "serverAddressByClientCIDRs",
    "groups",
    "resources",
    "items",
    "major",
    "minor",
    "emulationMajor",
    "emulationMinor",
    "minCompatibilityMajor",
    "minCompatibilityMinor",
    "gitVersion",
    "gitCommit",
    "gitTreeState",
    "buildDate",
    "goVersion",
    "compiler",
    "platform",
    "issuer",
    "jwks_uri",
    "response_types_supported",
    "subject_types_supported",
    "id_token_signing_alg_values_supported",
];

/// The fields of nested values: `APIGroup`, `GroupVersionForDiscovery`, `APIResource`, `ServerAddressByClientCIDR`,
/// `APIVersionDiscovery`, `APIResourceDiscovery`, `APISubresourceDiscovery`, `GroupVersionKind`, and JSON Web Keys.
const INNER: &[&str] = &[
    "metadata",
    "name",
    "resource",
    "subresource",
    "singularName",
    "namespaced",
    "groupVersion",
    "group",
    "version",
    "kind",
    "responseKind",
    "scope",
    "singularResource",
    "verbs",
    "shortNames",
    "categories",
    "subresources",
    "storageVersionHash",
    "versions",
    "preferredVersion",
    "resources",
    "freshness",
    "clientCIDR",
    "serverAddress",
    "use",
    "kty",
    "kid",
    "crv",
    "alg",
];

/// A document to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ordered<'a> {
    value: &'a Value,
    fields: &'static [&'static str],
}

impl<'a> Ordered<'a> {
    pub(super) fn new(value: &'a Value) -> Self {
        Self { value, fields: ROOT }
    }

    fn map<S: Serializer>(&self, map: &'a Map, serializer: S) -> Result<S::Ok, S::Error> {
        // Other keys are written last, in their original order.
        let rank = |key: &str| {
            self.fields
                .iter()
                .position(|it| *it == key)
                .unwrap_or(self.fields.len())
        };
        let mut entries: Vec<_> = map.iter().collect();
        entries.sort_by_key(|(key, _)| rank(key));
        let mut out = serializer.serialize_map(Some(entries.len()))?;
        for (key, value) in entries {
            out.serialize_entry(key, &Self { value, fields: INNER })?;
        }
        out.end()
    }
}

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value {
            Value::Object(map) => self.map(map, serializer),
            Value::Array(items) => serializer.collect_seq(items.iter().map(|value| Self { value, fields: INNER })),
            other => other.serialize(serializer),
        }
    }
}
