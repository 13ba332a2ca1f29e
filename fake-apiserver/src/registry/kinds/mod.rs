//! One strategy a built-in kind that needs one.

pub(crate) mod names;
