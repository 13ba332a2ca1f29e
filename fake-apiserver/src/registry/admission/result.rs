//! The result of a mutation: decodes the object as its type, and keeps its managed fields intact.

use super::attributes::{Attributes, kind_of};
use crate::api::admission::GroupVersionKind;
use crate::api::json::Value;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::managed_fields;
use crate::registry::scheme::Row;
use crate::registry::scheme::body;
use crate::registry::types::decode::{self, Claim, Wanted};
use crate::registry::types::schema::builtin::{Shape, shape_of};

/// Decodes a changed object as `kind`, with pruning and defaults. Another served version of the same kind is also
/// accepted; objects of any other kind are refused.
pub(super) fn read_back(row: &Row, kind: &GroupVersionKind, value: Value) -> Result<Object, Status> {
    let Value::Object(map) = value else {
        let why = "json: cannot unmarshal the result into Go value of type map[string]interface {}";
        return Err(Status::internal(why));
    };
    let mut object = Object(map);
    let is_own = *kind == kind_of(&row.info);
    if is_own {
        body::check_admitted(row, &object)?;
    }
    let shape = match is_own {
        true => row.shape(),
        false => shape_of(&kind.group, &kind.version, &kind.kind),
    };
    if let Some(shape) = shape {
        claim(row, kind, shape, &mut object)?;
    }
    if is_own {
        body::read_admitted(row, &mut object).map_err(Status::internal)?;
        return Ok(object);
    }
    if let Some(shape) = shape {
        decode::convert(shape, &mut object).map_err(Status::internal)?;
    }
    object.insert("kind".into(), kind.kind.as_str().into());
    object.insert("apiVersion".into(), kind.api_version().into());
    Ok(object)
}

/// Converts an object of a built-in kind to the version of `kind`, and refuses objects of other kinds.
fn claim(row: &Row, kind: &GroupVersionKind, shape: &'static Shape, object: &mut Object) -> Result<(), Status> {
    for (field, wanted) in [("kind", kind.kind.clone()), ("apiVersion", kind.api_version())] {
        if object.get(field).is_none_or(|it| it == "") {
            object.insert(field.into(), wanted.into());
        }
    }
    let wanted = Wanted {
        group: &kind.group,
        version: &kind.version,
        kind: &kind.kind,
        shape: Some(shape),
    };
    match Claim::of(wanted, object).map_err(Status::internal)? {
        Claim::Wanted | Claim::Internal => Ok(()),
        Claim::Version(other) => {
            decode::convert(other, object).map_err(Status::internal)?;
            if let Ok((_, converted)) = row.in_version(object, &kind.api_version()) {
                *object = converted.into_owned();
            }
            Ok(())
        }
        Claim::Other(_, why) => Err(Status::new(500, "", why)),
    }
}

/// The managed fields before the mutating phase. They are restored if they are malformed after that phase (rule P10).
#[derive(Debug)]
pub(super) struct Owners(Option<Value>);

impl Owners {
    /// Returns the managed fields of the current object.
    pub(super) fn of(attributes: &Attributes<'_>) -> Self {
        let metadata = attributes.object.as_ref().and_then(Object::metadata);
        Self(metadata.and_then(|it| it.get("managedFields")).cloned())
    }

    /// Restores the managed fields if the current ones are malformed, and returns a warning.
    pub(super) fn check(self, attributes: &mut Attributes<'_>) -> Option<String> {
        let object = attributes.object.as_mut()?;
        let entries = object.metadata().and_then(|meta| meta.get("managedFields"));
        let why = managed_fields::unreadable(entries)?;
        let meta = object.metadata_mut();
        meta.remove("managedFields");
        meta.extend(self.0.map(|it| ("managedFields".to_owned(), it)));
        Some(format!(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
             mutating admission controller; please fix your requests: {why}"
        ))
    }
}
