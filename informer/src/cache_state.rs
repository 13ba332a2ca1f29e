//! `CacheState`: the state of a cache that writes are compared with.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::{ObjectKey, ResourceVersion};

/// The state of a cache that writes are compared with.
pub(crate) trait CacheState: Send + Sync + 'static {
    /// Returns `true` if the cache contains the object with this key, or may contain it. `labels` are the object's
    /// labels, if they are known.
    fn may_have(&self, key: &ObjectKey, labels: Option<&BTreeMap<String, String>>) -> bool;

    /// Returns the version up to which the cache contains all changes to the object with this key.
    fn resource_version(&self, key: &ObjectKey) -> ResourceVersion;

    /// Returns the uid of the object with this key, if the cache contains it.
    fn uid(&self, key: &ObjectKey) -> Option<String>;

    /// Returns `true` if the cache contains an object with this key that is being deleted.
    fn is_deleting(&self, key: &ObjectKey) -> bool;

    /// Returns the time at which the informer last detected that the server was restored from a backup. Writes before
    /// this time may be lost, in which case the cache never receives them.
    fn restored(&self, key: &ObjectKey) -> Option<Instant>;

    /// Returns `true` if the cache no longer receives changes.
    fn has_ended(&self) -> bool {
        false
    }
}
