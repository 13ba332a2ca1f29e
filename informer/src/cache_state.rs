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

#[cfg(test)]
pub(crate) mod fake {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use super::*;

    /// A cache that contains all changes up to a version, but no objects.
    #[derive(Debug, Default)]
    pub(crate) struct FakeCache {
        pub(crate) version: AtomicU64,
        /// Number of comparisons with writes.
        pub(crate) comparisons: AtomicUsize,
        /// If set, the cache only selects objects whose label `app` has this value.
        pub(crate) app: Option<&'static str>,
    }

    impl FakeCache {
        /// Creates a cache that has reached a version.
        pub(crate) fn at(version: u64) -> Self {
            Self {
                version: AtomicU64::new(version),
                ..Self::default()
            }
        }
    }

    impl CacheState for FakeCache {
        fn may_have(&self, _: &ObjectKey, labels: Option<&BTreeMap<String, String>>) -> bool {
            self.comparisons.fetch_add(1, Ordering::Relaxed);
            match (self.app, labels) {
                (Some(app), Some(labels)) => labels.get("app").is_some_and(|it| it == app),
                (Some(_) | None, _) => true,
            }
        }

        fn resource_version(&self, _: &ObjectKey) -> ResourceVersion {
            ResourceVersion::from(self.version.load(Ordering::Relaxed).to_string().as_str())
        }

        fn uid(&self, _: &ObjectKey) -> Option<String> {
            None
        }

        fn is_deleting(&self, _: &ObjectKey) -> bool {
            false
        }

        fn restored(&self, _: &ObjectKey) -> Option<Instant> {
            None
        }
    }
}
