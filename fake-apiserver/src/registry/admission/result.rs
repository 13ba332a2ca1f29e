//! Result of mutation: read back into its type, with the owners of its fields intact.

use super::attributes::{Attributes, kind_of};
use crate::api::admission::GroupVersionKind;
use crate::api::json::Value;
use crate::api::object::Object;
use crate::registry::managed_fields;
use crate::registry::scheme::Row;
use crate::registry::scheme::body;
use crate::registry::types::decode;
use crate::registry::types::schema::builtin::shape_of;

/// Reads a changed object as `kind`: typed, pruned, defaulted. The error is the decoder's.
pub(super) fn read_back(row: &Row, kind: &GroupVersionKind, value: Value) -> Result<Object, String> {
    let Value::Object(map) = value else {
        return Err("json: cannot unmarshal the result into Go value of type map[string]interface {}".to_owned());
    };
    let mut object = Object(map);
    if *kind == kind_of(&row.info) {
        body::read_admitted(row, &mut object)?;
        return Ok(object);
    }
    if let Some(shape) = shape_of(&kind.group, &kind.version, &kind.kind) {
        decode::convert(shape, &mut object)?;
    }
    object.insert("kind".into(), kind.kind.as_str().into());
    object.insert("apiVersion".into(), kind.api_version().into());
    Ok(object)
}

/// The owners of the fields before mutation, which come back where it left something unreadable (rule P10).
#[derive(Debug)]
pub(super) struct Owners(Option<Value>);

impl Owners {
    /// Those of the object now.
    pub(super) fn of(attributes: &Attributes<'_>) -> Self {
        let metadata = attributes.object.as_ref().and_then(Object::metadata);
        Self(metadata.and_then(|it| it.get("managedFields")).cloned())
    }

    /// Puts them back if the present ones cannot be read; answers the warning.
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
