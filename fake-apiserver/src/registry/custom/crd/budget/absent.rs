//! Replaces `budget` if the feature `cel` is disabled: rules are not evaluated and cost nothing.

#![expect(clippy::unused_self, reason = "with the feature it uses self")]

use super::super::engine::Declared;
use crate::api::field::FieldErrors;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::registry::types::cursor::Cursor;

/// Placeholder without contents, because rules are not evaluated.
#[derive(Clone)]
pub(super) struct Scope;

impl Scope {
    pub(super) fn root(_: KubernetesVersion) -> Self {
        Self
    }

    pub(super) fn with_types(self, _: &Cursor<'_>) -> Self {
        self
    }

    pub(super) fn declared(&self) -> Declared {
        Declared
    }

    pub(super) fn property(&self, _: &Cursor<'_>, _: &str, _: &Cursor<'_>) -> Self {
        Self
    }

    pub(super) fn element(&self, _: &Cursor<'_>, _: &Cursor<'_>) -> Self {
        Self
    }
}

/// Placeholder without contents, because rules are not evaluated.
pub(super) struct Costs;

impl Costs {
    pub(super) fn new(_spares_single: bool) -> Self {
        Self
    }

    pub(super) fn add_rule(&mut self, _: &Cursor<'_>, _: &Scope, _: &mut FieldErrors) {}

    pub(super) fn add_message(&mut self, _: &Cursor<'_>, _: &Scope, _: &mut FieldErrors) {}

    pub(super) fn finish(self, _: &Cursor<'_>, _: &mut FieldErrors) {}
}
