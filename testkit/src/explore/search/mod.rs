//! The search: the plans in the order of their trial.

mod order;
mod candidates;
mod turns;
mod confirm;
mod in_order;
mod replays;
mod failures;
mod random;
mod shrink;
mod late_start;
mod shard;
mod coverage;

pub use coverage::Coverage;
pub(crate) use coverage::counted;
pub(crate) use failures::Failures;
pub(crate) use in_order::{Runs, Stop};
pub(crate) use order::{Asides, Kinds, Limits, Search};
pub(crate) use replays::replays;
pub(crate) use shard::Shard;
