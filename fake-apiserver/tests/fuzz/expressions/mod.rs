//! Expressions in rules of CRDs and in policies: random ones, their costs, and rules by example.

mod cel;
mod costs;
mod rules;
