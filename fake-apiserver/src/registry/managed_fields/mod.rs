//! Who owns which field: managedFields and server-side apply.
//!
//! The layer knows objects and their schemas, and nothing of storage, HTTP or clocks.

mod element;
mod set;
mod json;
mod items;
mod compare;
mod entries;
mod name;
mod update;

#[cfg(test)]
mod update_tests;

pub(crate) use name::{manager_name, validate_field_manager};
pub(crate) use update::{restore_times, track_update};

use std::borrow::Cow;

use crate::api::object::Object;
use crate::registry::schema::SchemaRef;

/// Who writes, and what of the written object can be owned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manager<'a> {
    /// The name, from [`manager_name`].
    pub(crate) name: &'a str,
    /// The apiVersion of the request, which is that of the objects compared.
    pub(crate) api_version: &'a str,
    /// The subresource written through; empty for the resource itself.
    pub(crate) subresource: &'a str,
    /// The time of the write, `2006-01-02T15:04:05Z`.
    pub(crate) time: &'a str,
    /// The paths this kind of write cannot own, with all that lies below (rule H10), such as `[["status"]]` of a
    /// resource whose status is a subresource.
    pub(crate) reset: &'a [&'a [&'a str]],
}

/// The type of the written objects, in the request's version and in others.
#[derive(Clone, Copy)]
pub(crate) struct Types<'a> {
    /// The type in the version of [`Manager::api_version`].
    pub(crate) schema: SchemaRef<'a>,
    /// Converts an object to another apiVersion and names its type there. `None` where the version is not served (any
    /// more), whose entries are dropped. Only asked where an entry is of another version than the request.
    pub(crate) other: &'a OtherVersion<'a>,
}

/// How [`Types::other`] is called: the object, and the apiVersion it is wanted in.
pub(crate) type OtherVersion<'a> = dyn for<'o> Fn(&'o Object, &str) -> Option<(SchemaRef<'a>, Cow<'o, Object>)> + 'a;

impl std::fmt::Debug for Types<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Types")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// For kinds that have one version: no other is known.
pub(crate) fn single_version<'a, 'o>(_: &'o Object, _: &str) -> Option<(SchemaRef<'a>, Cow<'o, Object>)> {
    None
}

pub(crate) fn apply(
    _schema: SchemaRef<'_>,
    _live: Option<&Object>,
    applied: &Object,
    _manager: &Manager<'_>,
    _force: bool,
) -> Result<Object, crate::api::status::Status> {
    Ok(applied.clone())
}
