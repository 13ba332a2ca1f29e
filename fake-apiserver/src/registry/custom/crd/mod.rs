//! The kind CustomResourceDefinition: its defaults, its checks and its life. It knows nothing of the objects defined.

#[cfg(feature = "cel")]
mod budget;
mod columns;
mod conversion;
#[cfg(feature = "cel")]
mod declaration;
mod defaults;
mod field_path;
mod node;
mod open_api;
mod rules;
mod spec;
mod status;
mod strategy;
mod structural;

pub(crate) use status::{Names, UsedNames, finalize, group, is_settled, reconcile};
pub(crate) use strategy::CrdStrategy;

#[cfg(test)]
mod tests;

#[cfg(all(test, feature = "cel"))]
mod cost_tests;
