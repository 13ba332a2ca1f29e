//! What the rules of a CRD may cost at worst, as kube-apiserver estimates it before it stores them (rule O8). The
//! limits and the arithmetic are those of its CEL library; a CRD it refuses for its cost is refused here, too.
//!
//! Where the type of an expression is not known here, the estimate is the lowest one that is possible, so that no rule
//! is refused which a real server takes.

mod budget;
mod coster;
mod call;
mod price;
mod decl;
mod types;
mod range;

#[cfg(test)]
mod tests;

pub(super) use budget::{Costs, Scope};
