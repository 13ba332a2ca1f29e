//! Custom resources: what a CustomResourceDefinition says, and the strategy of the objects it defines.

pub(crate) mod schema;

pub(crate) mod definition;

mod default;
mod formats;
mod number;
mod path;
mod pattern;
mod prune;
mod validate;
