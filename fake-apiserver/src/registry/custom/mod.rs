//! Custom resources: what a CustomResourceDefinition says, and the strategy of the objects it defines.

pub(crate) mod schema;

pub(crate) mod crd;
pub(crate) mod definition;

mod default;
mod embedded;
mod formats;
mod metadata;
mod number;
mod path;
mod pattern;
mod prune;
mod unique;
mod validate;
pub(crate) mod controller;
pub(crate) use controller::decode;
