//! Compiles and evaluates the rules of CRDs with `registry/cel`, on values of a schema. The module does not depend on
//! CRDs. Without CEL, `absent.rs` replaces it.

mod compile;
mod evaluate;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

pub(super) use compile::{Declared, problem_of_message, problem_of_rule};
pub(super) use evaluate::{Compiled, Operands, evaluate, is_about_change};
