//! Custom resources: the parsed CustomResourceDefinition, and the strategy of its objects.

pub(crate) mod schema;
pub(crate) mod strategy;

pub(crate) mod conversion;
pub(crate) mod crd;
pub(crate) mod decode;
pub(crate) mod definition;
pub(crate) mod scale;

mod default;
mod embedded;
#[cfg(feature = "cel")]
pub(crate) mod declaration;
#[cfg_attr(not(feature = "cel"), path = "engine/absent.rs")]
mod engine;
mod formats;
mod json_type;
mod keyed_items;
mod keywords;
mod metadata;
mod number;
mod path;
mod properties;
mod prune;
mod rules;
mod unique;
mod validate;

#[cfg(test)]
mod tests;

#[cfg(test)]
mod property_tests;
