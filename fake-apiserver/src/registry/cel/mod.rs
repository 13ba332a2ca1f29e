//! CEL, the language of rules and policies: parsing within bounds, the functions that Kubernetes adds, evaluation with
//! costs, and estimates of costs.
//!
//! It stands on the crate `kube-cel` and knows JSON values, but neither schemas nor objects: `custom/` brings the types
//! of a CRD's schema, `admission/` the variables of a policy. The limits and the arithmetic of costs are those of
//! kube-apiserver's CEL library.

/// Set if expressions are evaluated at all; `absent.rs` stands here where they are not.
pub(crate) const IS_EVALUATED: bool = true;

pub(crate) mod parse;
mod depth;
pub(crate) mod macros;
pub(crate) mod names;
pub(crate) mod library;
pub(crate) mod value;
pub(crate) mod output;
pub(crate) mod program;
pub(crate) mod eval;
pub(crate) mod cost;
mod costs;
mod url;
