//! CEL, the expression language of rules and policies: bounded parsing, the functions that Kubernetes adds, evaluation
//! with costs, and cost estimates.
//!
//! The module handles JSON values and does not depend on schemas or objects. `custom/` supplies the types of a CRD's
//! schema, `admission/` the variables of a policy. Limits and cost arithmetic follow kube-apiserver's CEL library.

/// Set if this build evaluates expressions; otherwise `absent.rs` replaces this module.
pub(crate) const IS_EVALUATED: bool = true;

pub(crate) mod ast;
pub(crate) mod parse;
mod depth;
pub(crate) mod syntax;
pub(crate) mod check;
pub(crate) mod objects;
pub(crate) mod times;
pub(crate) mod library;
pub(crate) mod value;
pub(crate) mod requests;
pub(crate) mod program;
pub(crate) mod eval;
pub(crate) mod cost;
mod costs;
