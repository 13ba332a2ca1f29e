//! State at a revision. This layer is synchronous, without tasks, clock, HTTP or `Status`. It depends only on the
//! vocabulary.

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

/// The number of a write, counted over all resources; 0 precedes the first write. Deletes are counted as well, and
/// numbers are never reused (rule B6). The `resourceVersion` of an object is this number as text.
pub(crate) type Revision = u64;
