//! State at a revision. Synchronous: no task, no clock, no HTTP, no `Status`; it knows the vocabulary alone.

pub(crate) mod key;
pub(crate) mod object;
pub(crate) mod sorted;
pub(crate) mod change;
pub(crate) mod dropped;
pub(crate) mod history;
pub(crate) mod snapshot;
pub(crate) mod store;

pub(crate) use change::Change;
pub(crate) use dropped::ResourcePart;
pub(crate) use history::Compacted;
pub(crate) use key::{Key, KeyRange};
pub(crate) use object::{Body, Stored};
pub(crate) use snapshot::ResourceSnapshot;
pub(crate) use store::{LogBounds, Store, StoreError, World};

/// The number of a write, counted over all resources; 0 is before the first. A delete takes one too, and none is
/// ever used twice (rule B6). As text it is an object's `resourceVersion`.
pub(crate) type Revision = u64;
