//! Rules of CRDs as expressions of `registry/cel`: their errors before they are evaluated, and their evaluation on
//! values of a schema. It knows no CRD. `absent.rs` stands here where the language is not built.

mod compile;
mod evaluate;

#[cfg(test)]
mod tests;

pub(super) use compile::{problem_of_message, problem_of_rule};
pub(super) use evaluate::{Compiled, Operands, evaluate, is_about_change};
