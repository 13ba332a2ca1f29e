//! In the place of `budget` where the feature `cel` is off: rules that are not evaluated cost nothing.

#![expect(clippy::unused_self, reason = "with the feature there is something to count")]

use crate::api::field::FieldErrors;
use crate::registry::types::cursor::Cursor;

/// No facts.
#[derive(Clone)]
pub(super) struct Scope;

impl Scope {
    pub(super) fn root() -> Self {
        Self
    }

    pub(super) fn with_types(self, _: &Cursor<'_>) -> Self {
        self
    }

    pub(super) fn property(&self, _: &Cursor<'_>, _: &str, _: &Cursor<'_>) -> Self {
        Self
    }

    pub(super) fn element(&self, _: &Cursor<'_>, _: &Cursor<'_>) -> Self {
        Self
    }
}

/// No costs.
pub(super) struct Costs;

impl Costs {
    pub(super) fn new(_spares_single: bool) -> Self {
        Self
    }

    pub(super) fn add_rule(&mut self, _: &Cursor<'_>, _: &Scope, _: &mut FieldErrors) {}

    pub(super) fn add_message(&mut self, _: &Cursor<'_>, _: &Scope, _: &mut FieldErrors) {}

    pub(super) fn finish(self, _: &Cursor<'_>, _: &mut FieldErrors) {}
}
