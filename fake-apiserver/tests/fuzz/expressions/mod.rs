//! Expressions in rules of CRDs and in policies: random expressions, their costs, and examples.

mod cel;
mod costs;
mod rules;
