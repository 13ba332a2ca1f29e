//! CustomResourceDefinitions at work: a stored one is served, a changed one is served anew, a deleted one takes its
//! objects with it. What the real server's CRD controllers do later is done here right after the write.

use std::sync::{Arc, PoisonError};

use super::custom::crd;
use super::custom::definition::CustomResource;
use super::scheme::{CRDS, Row};
use super::{Registry, codec};
use crate::api::object::Object;
use crate::api::options::DeleteOptions;
use crate::storage::{Range, Stored};

impl Registry {
    /// The row through which CRDs themselves are read and written.
    fn definitions_row(&self) -> Option<Arc<Row>> {
        self.scheme()
            .lookup("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    }

    /// Serves the CRDs that are stored.
    pub(super) fn load_definitions(&self) {
        let Some(row) = self.definitions_row() else { return };
        let _guard = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        let everything = Range::of(None);
        let snapshot = self.store.snapshot(CRDS);
        let definitions: Vec<(String, Object)> = snapshot
            .range(&everything)
            .map(|stored| (stored.key.as_str().to_owned(), codec::decode(&row, stored)))
            .collect();
        let rows: Vec<Row> = definitions
            .iter()
            .filter_map(|(_, crd)| CustomResource::parse(crd))
            .flat_map(|resource| {
                let resource = Arc::new(resource);
                let row = |version: &Arc<_>| Row::custom(Arc::clone(&resource), Arc::clone(version));
                resource.served.iter().map(row).collect::<Vec<_>>()
            })
            .collect();
        self.change_scheme(|scheme| scheme.set_custom(rows));
        self.definitions_changed.notify_waiters();
    }

    /// After a write to a CRD: brings the status of all up to date, one write each, then serves what is established.
    pub(super) fn definitions_written(&self) {
        let Some(row) = self.definitions_row() else { return };
        // Each step may change what the others may have, such as a name set free; it ends because each one moves on.
        while self.reconcile_one(&row) {}
        self.load_definitions();
    }

    /// Finds a CRD with something to do and does it; false if there is none.
    fn reconcile_one(&self, row: &Row) -> bool {
        let everything = Range::of(None);
        let snapshot = self.store.snapshot(CRDS);
        let all: Vec<&Arc<Stored>> = snapshot.range(&everything).collect();
        let objects: Vec<Object> = all.iter().map(|stored| codec::decode(row, stored)).collect();
        for (stored, definition) in all.iter().zip(&objects) {
            let now = self.entropy.now_seconds();
            let Some(next) = crd::reconcile(definition, &objects, &now) else {
                continue;
            };
            let Ok(body) = codec::encode(row, &next) else { continue };
            if body.bytes != stored.body.bytes
                && self
                    .store
                    .update(&row.storage, &stored.key, stored.revision, body)
                    .is_ok()
            {
                self.fanout.wake(&row.storage, &stored.key);
                self.committed.notify_waiters();
                return true;
            }
        }
        self.finish_deleted_definitions(row)
    }

    /// Deletes the objects of a CRD that is being deleted; when none is left, the CRD goes.
    fn finish_deleted_definitions(&self, row: &Row) -> bool {
        let everything = Range::of(None);
        let snapshot = self.store.snapshot(CRDS);
        for stored in snapshot.range(&everything) {
            let definition = codec::decode(row, stored);
            if !definition.is_terminating() {
                continue;
            }
            let Some(resource) = CustomResource::parse(&definition).map(Arc::new) else {
                continue;
            };
            let instances = Row::custom(Arc::clone(&resource), Arc::clone(&resource.storage));
            let now = self.entropy.now_seconds();
            let marked = crd::finalize(&definition, true, &now);
            let left = marked.is_none() && self.delete_instances(&instances) > 0;
            let Some(next) = marked.or_else(|| crd::finalize(&definition, left, &now)) else {
                continue;
            };
            let written = if next.finalizers().next().is_none() {
                self.store.delete(&row.storage, &stored.key, stored.revision).is_ok()
            } else {
                codec::encode(row, &next).is_ok_and(|body| {
                    self.store
                        .update(&row.storage, &stored.key, stored.revision, body)
                        .is_ok()
                })
            };
            if written {
                self.fanout.wake(&row.storage, &stored.key);
                self.committed.notify_waiters();
                return true;
            }
        }
        false
    }

    /// Deletes every object of a resource; returns how many finalizers still hold.
    fn delete_instances(&self, row: &Row) -> usize {
        let everything = Range::of(None);
        let snapshot = self.store.snapshot(&row.storage);
        let mut left = 0;
        for stored in snapshot.range(&everything) {
            // An object that changed meanwhile is seen again after the write that changed it.
            let _ = self.delete_once(row, stored, &DeleteOptions::default());
            left += usize::from(self.store.get(&row.storage, &stored.key).is_some());
        }
        left
    }

    /// After an object of a custom resource went: its CRD may have waited for that.
    pub(super) fn instance_removed(&self) {
        let Some(row) = self.definitions_row() else { return };
        if self.finish_deleted_definitions(&row) {
            self.definitions_written();
        }
    }
}
