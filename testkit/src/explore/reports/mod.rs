//! Reports: the findings of an exploration, as text, as JSON and as a page.

mod report;
mod failure;
mod timeline;
mod cell;
mod viewer;
mod progress;
mod shards;

pub use failure::Failure;
pub(crate) use progress::Progress;
pub use report::Report;
#[cfg(all(feature = "processes", unix))]
pub(crate) use shards::together;
pub(crate) use shards::{MERGE, Merged, merged};
