//! Evaluation of expressions, with the cost that a real server counts: what costs too much ends (rule O8).
//!
//! Variables, macros and operators are evaluated here; other functions are those of the crate `kube-cel`. It knows
//! neither schemas nor objects.

mod evaluation;
mod functions;
mod meter;
mod operators;

#[cfg(test)]
mod tests;

pub(crate) use evaluation::evaluate;
pub(crate) use meter::{EvalFailure, Meter, weight};
