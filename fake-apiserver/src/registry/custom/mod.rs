//! Custom resources: what a CustomResourceDefinition says, and the strategy of the objects it defines.

pub(crate) mod schema;
