//! The stored objects at each revision. This layer is synchronous: it does not use tasks, clocks, HTTP or `Status`.

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

/// Ordinal of a write among all resources; 0 is before the first write. Deletes are counted as well, and revisions are
/// never reused (rule B6). The `resourceVersion` of an object is the revision of its last write as a string.
pub(crate) type Revision = u64;
