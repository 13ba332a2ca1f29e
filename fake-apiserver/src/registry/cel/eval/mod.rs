//! Evaluates expressions and counts their cost like kube-apiserver. An evaluation that exceeds the limit fails (rule
//! O8).
//!
//! This module implements variables, macros, operators and functions. It does not depend on schemas or objects.

mod access;
mod addresses;
mod arithmetic;
mod attributes;
mod conversions;
mod evaluation;
mod format;
mod formats;
mod functions;
mod lists;
mod loops;
mod merging;
mod meter;
mod mismatch;
mod network;
mod operators;
mod patterns;
mod plan;
mod planner;
mod prices;
mod quantities;
mod sizes;
mod strings;
mod times;
mod urls;
mod values;
mod versions;

#[cfg(test)]
mod tests;

pub(crate) use evaluation::{MoreFunctions, evaluate, no_more_functions};
pub(crate) use merging::{ItemType, ListType, Merging, stored_keys};
pub(crate) use meter::{Meter, TypedLists, weight};
pub(crate) use plan::Plan;
pub(crate) use planner::plan_of;
pub(crate) use values::{EvalFailure, Evaluated, broken, overload};
