//! Reconciling keys: reconcilers, their results, and the worker loop that calls them.
//!
//! This module depends on keys and queues, but not on objects or on the sources of events.

mod reconciler;
mod reconcile_error;
mod collection;
mod asked;
mod write;
mod write_log;
mod writes;
mod gate;
mod shard;
mod stats;
mod span;
mod worker;

pub use crate::error::BoxError;
pub(crate) use asked::Asked;
pub(crate) use collection::{ClusterId, Collection};
pub(crate) use gate::{Caches, Gate};
pub use reconcile_error::{ReconcileError, TerminalError};
pub use reconciler::{Action, Reconciler, Request};
pub(crate) use shard::{Hold, Shard, Stay};
pub(crate) use span::{ControllerKind, KeyParts, SpanOf, default_span};
pub(crate) use worker::{Doors, Workers, WorkersConfig};
pub(crate) use write::Write;
#[cfg(test)]
pub(crate) use write::Written;
pub use writes::Writes;
