//! Structural schemas of custom resources.

use serde_json::Value;

use crate::registry::schema::{ListType, SchemaRef};

/// One node of a structural schema.
#[derive(Clone, Debug, Default)]
pub(crate) struct Structural;

impl Structural {
    pub(crate) fn field(&self, _name: &str) -> Option<SchemaRef<'_>> {
        Some(SchemaRef::Deduced)
    }

    pub(crate) fn declares(&self, _name: &str) -> bool {
        false
    }

    pub(crate) fn is_atomic_map(&self) -> bool {
        false
    }

    pub(crate) fn items(&self) -> SchemaRef<'_> {
        SchemaRef::Deduced
    }

    pub(crate) fn list_type(&self) -> ListType<'_> {
        ListType::Atomic
    }

    pub(crate) fn key_default(&self, _key: &str) -> Option<Value> {
        None
    }
}
