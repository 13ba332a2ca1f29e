//! Ownership of fields: managedFields and server-side apply.
//!
//! This module depends on objects and their schemas, but not on storage, HTTP or clocks.

mod element;
mod set;
mod json;
mod items;
mod compare;
mod entries;
mod name;
mod update;
mod reconcile;
mod typed;
mod merge;
mod prune;
mod conflict;
mod last_applied;
mod apply;
mod scale;

#[cfg(test)]
mod apply_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod scale_tests;
#[cfg(test)]
mod update_tests;

pub(crate) use apply::apply;
pub(crate) use name::manager_name;
pub(crate) use scale::{ScaleFields, distinct};
pub(crate) use update::{restore_times, track_update};

use std::borrow::Cow;

use super::types::no_version::NoVersion;
use super::types::schema::SchemaRef;
use crate::api::json::{Map, Value};
use crate::api::object::Object;

/// Fields that cannot be owned (rule H9).
const UNOWNED: [&[&str]; 12] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "clusterName"],
    &["metadata", "creationTimestamp"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "resourceVersion"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
];

/// Manager of a write, and the fields of the written object that can be owned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manager<'a> {
    /// The name of the manager, from [`manager_name`].
    pub(crate) name: &'a str,
    /// The apiVersion of the request and of the compared objects.
    pub(crate) api_version: &'a str,
    /// The subresource of the request; empty for the resource itself.
    pub(crate) subresource: &'a str,
    /// The time of the write, `2006-01-02T15:04:05Z`.
    pub(crate) time: &'a str,
    /// The paths that the write cannot own, with all paths below them (rule H10), such as `[["status"]]` for a resource
    /// with the subresource `status`.
    pub(crate) reset: &'a [&'a [&'a str]],
}

/// The type of the written objects, in the request's version and in other versions.
#[derive(Clone, Copy)]
pub(crate) struct Types<'a, 's> {
    /// The type in the version of [`Manager::api_version`].
    pub(crate) schema: SchemaRef<'s>,
    /// Converts an object to a different apiVersion and returns its type in that version. Only called if the version of
    /// an entry differs from the request's.
    pub(crate) other: &'a OtherVersion<'a, 's>,
}

/// Type of [`Types::other`]. The arguments are the object, in the version of its `apiVersion`, and the version to
/// convert to.
pub(crate) type OtherVersion<'a, 's> =
    dyn for<'o> Fn(&'o Object, &str) -> Result<(SchemaRef<'s>, Cow<'o, Object>), NoVersion> + 'a;

impl std::fmt::Debug for Types<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Types")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// Merges an applied configuration into an object, without tracking owners.
pub(crate) fn merge_applied(schema: SchemaRef<'_>, live: &mut Map, applied: &Map) {
    merge::merge_maps(schema, live, applied);
}

/// Returns the error of the first entry of `metadata.managedFields` that cannot be parsed.
pub(crate) fn unreadable(entries: Option<&Value>) -> Option<String> {
    let entries = match entries {
        None | Some(Value::Null) => return None,
        Some(Value::Array(entries)) => entries,
        Some(_) => return Some("metadata.managedFields is not a list".to_owned()),
    };
    entries.iter().find_map(|entry| {
        let operation = entries::text(entry, "operation");
        if !matches!(operation, "Apply" | "Update") {
            return Some(format!("invalid operation \"{operation}\""));
        }
        if entries::text(entry, "apiVersion").is_empty() {
            return Some("apiVersion must not be empty".to_owned());
        }
        let kind = entries::text(entry, "fieldsType");
        if kind != "FieldsV1" {
            return Some(format!("invalid fieldsType \"{kind}\""));
        }
        json::decode(entry.get("fieldsV1"))
            .is_err()
            .then(|| "fieldsV1 cannot be decoded".to_owned())
    })
}

/// Returns `true` if an entry of the object has a version other than `api_version`.
pub(crate) fn is_of_other_versions(object: &Object, api_version: &str) -> bool {
    let entries = object.metadata().and_then(|it| it.get("managedFields"));
    let entries = entries.and_then(Value::as_array);
    entries.is_some_and(|entries| update::has_other_version(entries, api_version))
}

/// Conversion for kinds that have only one version: always fails.
pub(crate) fn single_version<'s, 'o>(_: &'o Object, _: &str) -> Result<(SchemaRef<'s>, Cow<'o, Object>), NoVersion> {
    Err(NoVersion::Obsolete)
}
