//! Specs: changes of an object's spec, which are explored instead of faults or together with them.

mod spec;
mod changes;
mod references;

pub(crate) use references::{Referenced, is_late};
pub(crate) use spec::{BACK, Spec};
