//! Lookups of stored objects, for rules that depend on objects other than the one being written.

use std::sync::Arc;

use super::Reader;
use crate::api::object::Object;
use crate::api::resource::GroupResource;
use crate::api::status::Status;
use crate::registry::scheme::Row;
use crate::registry::scheme::codec;
use crate::registry::types::plugins::Plugin;
use crate::storage::{Key, KeyRange, Stored};

impl Reader {
    /// Returns the stored objects of a built-in resource, in key order.
    pub(crate) fn stored_objects(&self, group: &str, resource: &str) -> Vec<Object> {
        self.decoded(group, resource, &KeyRange::of(None))
    }

    /// Calls `work` with the stored objects of a built-in resource in a range, in key order.
    fn with_stored<T: Default>(
        &self,
        group: &str,
        resource: &str,
        range: &KeyRange,
        work: impl FnOnce(&Row, &[&Arc<Stored>]) -> T,
    ) -> T {
        let scheme = self.scheme();
        let Some(row) = scheme.rows().find(|row| {
            row.info.group == group && row.info.resource == resource && row.is_storage_version && row.is_stored()
        }) else {
            return T::default();
        };
        let snapshot = self.store.snapshot(&row.storage);
        let stored: Vec<_> = snapshot.range(range).collect();
        work(row, &stored)
    }

    fn decoded(&self, group: &str, resource: &str, range: &KeyRange) -> Vec<Object> {
        self.with_stored(group, resource, range, |row, stored| {
            stored.iter().map(|stored| codec::decode(row, stored)).collect()
        })
    }

    /// Returns the stored objects of a built-in resource, in key order. They may be cached, for rules that read them at
    /// each write.
    pub(crate) fn known_objects(&self, group: &str, resource: &str) -> Vec<Arc<Object>> {
        self.with_stored(group, resource, &KeyRange::of(None), |row, stored| {
            self.known.objects(row, stored)
        })
    }

    /// Returns the objects of a resource in one namespace, sorted by name.
    pub(crate) fn objects_in(&self, group: &str, resource: &str, namespace: &str) -> Vec<Object> {
        self.decoded(group, resource, &KeyRange::of(Some(namespace)))
    }

    /// Returns a stored object of the core group.
    pub(crate) fn stored_object(&self, resource: &str, namespace: &str, name: &str) -> Option<Object> {
        let row = self.scheme().lookup("", "v1", resource)?;
        let stored = self.store.get(&row.storage, &Key::new(namespace, name))?;
        Some(self.decode(&row, &stored))
    }

    /// Checks that the namespace of a new object exists and is not being deleted (rules R2, R3), if the plugin
    /// `NamespaceLifecycle` is enabled.
    pub(in crate::registry) fn check_namespace(&self, row: &Row, namespace: &str, name: &str) -> Result<(), Status> {
        let is_checked = row.info.is_namespaced() && self.plugins.has(Plugin::NamespaceLifecycle);
        if !is_checked || namespace.is_empty() {
            return Ok(());
        }
        let Some(stored) = self.store.get("namespaces", &Key::new("", namespace)) else {
            let namespaces = GroupResource {
                group: "".into(),
                resource: "namespaces".into(),
            };
            return Err(Status::not_found(&namespaces, namespace));
        };
        if stored.field("status.phase") == "Terminating" {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            let gone = format!("namespace {namespace} is being terminated");
            return Err(Status::forbidden(&row.info.group_resource(), name, why).with_cause(
                "NamespaceTerminating",
                gone,
                "metadata.namespace",
            ));
        }
        Ok(())
    }

    /// Checks the namespace of a new subresource of the object `name`, such as an Eviction. Accepts a missing namespace
    /// if the object exists, because objects can be loaded without their namespaces.
    pub(in crate::registry) fn check_namespace_of(
        &self,
        row: &Row,
        resource: &str,
        (namespace, name): (&str, &str),
    ) -> Result<(), Status> {
        let has_namespace = self.store.get("namespaces", &Key::new("", namespace)).is_some();
        if !has_namespace && self.stored_object(resource, namespace, name).is_some() {
            return Ok(());
        }
        self.check_namespace(row, namespace, name)
    }
}
