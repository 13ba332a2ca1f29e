//! Estimates of what an expression costs at worst, as kube-apiserver makes them before it stores a CRD (rule O8).
//!
//! Where the type of an expression is not known the estimate is the lowest one that is possible, so that no rule is
//! refused that a real server takes.

pub(crate) mod decl;
pub(crate) mod coster;
mod call;
mod price;
mod range;
mod types;
