//! Compiles the rules of CRDs with `registry/cel`, and evaluates them for values with a schema. Without the feature
//! `cel`, `absent.rs` replaces this module.

mod compile;
mod evaluate;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

pub(super) use compile::{Declared, problem_of_message, problem_of_rule};
pub(super) use evaluate::{Compiled, Operands, evaluate, is_about_change};
