//! The search: generates plans in the order in which they are tried, and judges their runs.

mod order;
mod sources;
mod candidates;
mod turns;
mod shapes;
mod in_order;
mod as_they_come;
mod state;
mod work;
mod confirm;
mod context;
mod replays;
mod failures;
mod random;
mod shrink;
mod late_start;
mod arrivals;
mod asides;
mod shard;
mod coverage;

pub(crate) use asides::Asides;
pub(crate) use context::Runs;
pub use coverage::Coverage;
pub(crate) use coverage::counted;
pub(crate) use failures::Failures;
pub(crate) use replays::replays;
pub(crate) use shard::Shard;
pub(crate) use state::{Kinds, Limits, Search};
pub(crate) use work::Stop;
