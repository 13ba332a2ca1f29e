//! One strategy a built-in kind that needs one.

pub(crate) mod names;
pub(crate) mod view;
pub(crate) mod pod;
pub(crate) mod deployment;
pub(crate) mod replica_set;
pub(crate) mod workloads;
