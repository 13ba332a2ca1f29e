//! Estimates of the maximum cost of an expression, which kube-apiserver computes before it stores a CRD (rule O8).
//!
//! If the type of an expression is unknown, its lowest possible cost is assumed, so that the fake server does not
//! refuse a rule that kube-apiserver accepts.

pub(crate) mod decl;
pub(crate) mod coster;
mod call;
mod price;
mod range;
mod types;
