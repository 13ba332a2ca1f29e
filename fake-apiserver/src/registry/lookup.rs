//! Stored objects as they are now, for rules that look at other objects than the one that is written.

use super::{Registry, codec};
use crate::api::object::Object;
use crate::storage::Key;

impl Registry {
    /// Reads the stored objects of a built-in resource, in key order.
    pub(crate) fn stored_objects(&self, group: &str, resource: &str) -> Vec<Object> {
        let scheme = self.scheme();
        let Some(row) = scheme.rows().find(|row| {
            row.info.group == group && row.info.resource == resource && row.is_storage_version && row.is_stored()
        }) else {
            return Vec::new();
        };
        let everything = crate::storage::Range::of(None);
        let snapshot = self.store.snapshot(&row.storage);
        snapshot
            .range(&everything)
            .map(|stored| codec::decode(row, stored))
            .collect()
    }

    /// A stored object of the core group.
    pub(crate) fn stored_object(&self, resource: &str, namespace: &str, name: &str) -> Option<Object> {
        let row = self.scheme().lookup("", "v1", resource)?;
        let stored = self.store.get(&row.storage, &Key::new(namespace, name))?;
        Some(self.decode(&row, &stored))
    }
}
