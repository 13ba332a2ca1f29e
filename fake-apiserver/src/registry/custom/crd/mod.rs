//! The kind CustomResourceDefinition: its defaults, validation and lifecycle.

mod approval;
#[cfg_attr(not(feature = "cel"), path = "budget/absent.rs")]
mod budget;
mod columns;
mod conversion;
mod defaults;
mod field_path;
mod open_api;
mod rules;
mod spec;
mod status;
mod strategy;
mod structural;

pub(crate) use status::{CrdNames, UsedNames, finalize, group, is_settled, reconcile};
pub(crate) use strategy::CrdStrategy;

#[cfg(test)]
mod tests;
