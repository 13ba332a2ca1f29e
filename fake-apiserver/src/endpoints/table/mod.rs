//! Objects as rows of a Table.

use jiff::Timestamp;
use serde_json::Value;

use super::negotiation::MetaVersion;
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::scheme::Row;

/// What a row shows of its object.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl IncludeObject {
    pub(crate) fn parse(_text: &str) -> Result<Self, Status> {
        Ok(Self::Metadata)
    }
}

pub(crate) fn of_object(_: &Row, _: MetaVersion, _: &Object, _: IncludeObject, _: Timestamp) -> Result<Value, Status> {
    Err(Status::not_acceptable(&[]))
}

pub(crate) fn of_list(
    _: &Row,
    _: MetaVersion,
    _: &Value,
    _: &[Object],
    _: IncludeObject,
    _: Timestamp,
) -> Result<Value, Status> {
    Err(Status::not_acceptable(&[]))
}

pub(crate) fn of_event(_: &Row, _: MetaVersion, _: &Object, _: IncludeObject, _: Timestamp, _: bool) -> Value {
    Value::Null
}
