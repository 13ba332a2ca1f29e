//! In the place of `budget` where the feature `cel` is off: rules that are not evaluated cost nothing.

#![expect(clippy::unused_self, reason = "with the feature there is something to count")]

use super::node::Node;
use crate::api::field::{FieldErrors, FieldPath};

/// No facts.
#[derive(Clone)]
pub(super) struct Scope;

impl Scope {
    pub(super) fn root() -> Self {
        Self
    }

    pub(super) fn with_types(self, _: Node<'_>) -> Self {
        self
    }

    pub(super) fn property(&self, _: Node<'_>, _: &str, _: Node<'_>) -> Self {
        Self
    }

    pub(super) fn element(&self, _: Node<'_>, _: Node<'_>) -> Self {
        Self
    }
}

/// No costs.
pub(super) struct Costs;

impl Costs {
    pub(super) fn new(_spares_single: bool) -> Self {
        Self
    }

    pub(super) fn add_rule(&mut self, _: Node<'_>, _: &Scope, _: &FieldPath, _: &mut FieldErrors) {}

    pub(super) fn add_message(&mut self, _: Node<'_>, _: &Scope, _: &FieldPath, _: &mut FieldErrors) {}

    pub(super) fn finish(self, _: &FieldPath, _: &mut FieldErrors) {}
}
