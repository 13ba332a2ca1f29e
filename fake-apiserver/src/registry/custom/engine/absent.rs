//! Replaces `engine` if the feature `cel` is disabled: all rules compile, and no rule is violated.

use super::rules::{Rule, RuleVerdict};
use super::schema::Structural;
use super::validate::ValueView;
use crate::api::kubernetes_version::KubernetesVersion;
use crate::registry::types::cursor::Cursor;

/// Placeholder without contents, because rules are not evaluated.
#[derive(Debug, Default)]
pub(super) struct Compiled {}

impl Compiled {
    #[expect(clippy::unused_self, reason = "with the feature it uses self")]
    pub(super) fn uses_old(&self, _: &str) -> bool {
        false
    }
}

/// Placeholder without contents, because rules are not evaluated.
pub(super) struct Operands;

impl Operands {
    pub(super) fn new(_: &Structural, _: ValueView<'_>, _: Option<ValueView<'_>>) -> Self {
        Self
    }
}

pub(super) fn evaluate(_: &Rule, _: &Operands, _: &mut u64) -> RuleVerdict {
    RuleVerdict::Holds
}

pub(super) fn is_about_change(_: &str) -> bool {
    false
}

/// Placeholder without contents, because rules are not evaluated.
pub(super) struct Declared;

impl Declared {
    pub(super) fn of_node(_: &Cursor<'_>, _: bool, _: KubernetesVersion) -> Self {
        Self
    }
}

pub(super) fn problem_of_rule(_: &str, _: bool, _: &Declared) -> Option<String> {
    None
}

pub(super) fn problem_of_message(_: &str, _: bool, _: &Declared) -> Option<String> {
    None
}
