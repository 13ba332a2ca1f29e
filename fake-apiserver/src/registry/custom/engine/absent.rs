//! In the place of `engine` where the feature `cel` is off: nothing is wrong with a rule, and all rules hold.

use super::rules::{Rule, RuleVerdict};
use super::schema::Structural;
use super::validate::ValueView;

/// No program.
#[derive(Debug, Default)]
pub(super) struct Compiled {}

impl Compiled {
    #[expect(clippy::unused_self, reason = "with the feature there is something to ask")]
    pub(super) fn uses_old(&self, _: &str) -> bool {
        false
    }
}

/// Nothing is converted.
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

pub(super) fn problem_of_rule(_: &str, _: &Structural) -> Option<String> {
    None
}

pub(super) fn problem_of_message(_: &str, _: &Structural) -> Option<String> {
    None
}
