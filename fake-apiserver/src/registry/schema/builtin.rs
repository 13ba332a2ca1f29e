//! The types of the built-in resources, from the generated table.

use serde_json::Value;

use super::{ListType, PatchStrategy};

/// One node of the generated table.
#[derive(Debug)]
pub(crate) struct Shape;

impl Shape {
    pub(crate) fn field(&'static self, _name: &str) -> Option<&'static Shape> {
        None
    }

    pub(crate) fn is_always_present(&self, _name: &str) -> bool {
        false
    }

    pub(crate) fn declares(&self, _name: &str) -> bool {
        false
    }

    pub(crate) fn is_atomic_map(&self) -> bool {
        false
    }

    pub(crate) fn items(&'static self) -> Option<&'static Shape> {
        None
    }

    pub(crate) fn list_type(&self) -> ListType<'static> {
        ListType::Atomic
    }

    pub(crate) fn key_default(&self, _key: &str) -> Option<Value> {
        None
    }

    pub(crate) fn patch_strategy(&self) -> PatchStrategy {
        PatchStrategy::default()
    }
}
