//! Replaces `table` without the feature `serve`: Tables are refused during negotiation.

use jiff::Timestamp;

use super::negotiation::MetaVersion;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::api::status::Status;
use crate::registry::scheme::Row;

/// Placeholder for `table::PrinterColumn`. It cannot be created: columns are only parsed with the feature `serve`.
#[derive(Debug)]
pub(crate) enum PrinterColumn {}

impl PrinterColumn {
    pub(crate) fn all(_: &[Value]) -> Vec<Self> {
        Vec::new()
    }

    pub(crate) fn of_scale() -> Result<Vec<Self>, String> {
        Ok(Vec::new())
    }
}

/// Source of the columns of a Table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Columns<'a> {
    Builtin { group: &'a str, kind: &'a str },
    Custom(&'a [PrinterColumn]),
}

/// The part of the object that a row contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IncludeObject;

impl IncludeObject {
    pub(crate) fn parse(_: Option<&str>) -> Result<Self, Status> {
        Ok(Self)
    }
}

/// Options of Tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables<'a> {
    pub(crate) columns: Columns<'a>,
    pub(crate) converted: Option<&'a Row>,
    pub(crate) version: MetaVersion,
    pub(crate) include: IncludeObject,
    pub(crate) now: Timestamp,
}

impl Tables<'_> {
    #[expect(clippy::unused_self, reason = "with the feature it is read")]
    pub(crate) fn of_object(&self, _: &Object) -> Value {
        Value::Null
    }

    #[expect(clippy::unused_self, reason = "with the feature it is read")]
    pub(crate) fn of_event(&self, _: &Object, _: bool) -> Value {
        Value::Null
    }

    #[expect(clippy::unused_self, reason = "with the feature it is read")]
    pub(crate) fn of_list<'o>(&self, _: Option<&Map>, _: impl IntoIterator<Item = &'o Object>) -> Value {
        Value::Null
    }
}
