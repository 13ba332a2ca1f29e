//! Expressions in rules of CRDs and in policies: random ones, their costs, and examples.

mod cel;
mod costs;
mod rules;
