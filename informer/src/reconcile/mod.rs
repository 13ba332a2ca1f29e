//! Work on one key: the reconciler, its result, and the loop that calls it.
//!
//! It knows keys and queues, and neither objects nor where events come from.

mod reconciler;
mod collection;
mod asked;
mod writes;
mod gate;
mod shard;
mod stats;
mod worker;

pub(crate) use collection::{ClusterId, Collection};
pub(crate) use gate::{CacheState, Caches, Gate};
pub use reconciler::{Action, BoxError, ReconcileError, Reconciler, Request};
pub(crate) use shard::{Hold, Shard, Stay};
pub(crate) use worker::{Doors, Workers, WorkersConfig};
pub(crate) use writes::Write;
pub use writes::Writes;
