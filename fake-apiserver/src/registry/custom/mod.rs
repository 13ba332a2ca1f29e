//! Custom resources: what a CustomResourceDefinition says, and the strategy of the objects it defines.

pub(crate) mod schema;
pub(crate) mod strategy;

pub(crate) mod conversion;
pub(crate) mod crd;
pub(crate) mod decode;
pub(crate) mod definition;
pub(crate) mod scale;

#[cfg(feature = "cel")]
mod compile;
#[cfg(feature = "cel")]
mod costs;
mod default;
#[cfg(feature = "cel")]
mod depth;
mod embedded;
#[cfg(feature = "cel")]
mod engine;
#[cfg(feature = "cel")]
mod eval;
#[cfg(feature = "cel")]
pub(crate) mod free;
#[cfg(feature = "cel")]
pub(crate) mod authorizer;
mod formats;
#[cfg(feature = "cel")]
mod macros;
mod metadata;
#[cfg(feature = "cel")]
mod names;
mod number;
#[cfg(feature = "cel")]
mod parse;
mod path;
mod pattern;
mod prune;
mod rules;
mod unique;
#[cfg(feature = "cel")]
mod url;
mod validate;

#[cfg(test)]
mod tests;

#[cfg(test)]
mod property_tests;
