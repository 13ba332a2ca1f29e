//! CustomResourceDefinitions at work: a stored one is served, a changed one is served anew, a deleted one takes its
//! objects with it. What the real server's CRD controllers do later is done here right after the write.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};

use super::custom::crd;
use super::custom::definition::CustomResource;
use super::scheme::{CRDS, Row};
use super::{Registry, codec};
use crate::api::object::Object;
use crate::api::options::DeleteOptions;
use crate::storage::{Range, Stored};

/// A stored CRD, read once for as long as it is not written.
#[derive(Debug)]
pub(super) struct Definition {
    stored: Arc<Stored>,
    crd: Object,
    /// What it defines; found out when it is first needed, and the same until the CRD says something else.
    resource: OnceLock<Option<Arc<CustomResource>>>,
}

impl Definition {
    fn read(row: &Row, stored: &Arc<Stored>, before: Option<&Self>) -> Self {
        let crd = codec::decode(row, stored);
        let resource = before
            .filter(|it| CustomResource::identity(&it.crd) == CustomResource::identity(&crd))
            .map(|it| it.resource.clone());
        Self {
            stored: Arc::clone(stored),
            crd,
            resource: resource.unwrap_or_default(),
        }
    }

    /// What a valid CRD defines.
    fn resource(&self) -> Option<&Arc<CustomResource>> {
        let parse = || CustomResource::parse(&self.crd).map(Arc::new);
        self.resource.get_or_init(parse).as_ref()
    }

    /// The rows of what is served.
    fn rows(&self) -> Vec<Row> {
        let Some(resource) = self.resource().filter(|_| CustomResource::is_established(&self.crd)) else {
            return Vec::new();
        };
        let row = |version: &Arc<_>| Row::custom(Arc::clone(resource), Arc::clone(version));
        resource.served.iter().map(row).collect()
    }
}

/// The stored CRDs in the order of their names.
pub(super) type Definitions = Vec<Arc<Definition>>;

impl Registry {
    /// The row through which CRDs themselves are read and written.
    fn definitions_row(&self) -> Option<Arc<Row>> {
        self.scheme()
            .lookup("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    }

    /// The stored CRDs as they are now. Only what was written since the last look is read.
    fn definitions(&self, row: &Row) -> MutexGuard<'_, Definitions> {
        let mut known = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        let everything = Range::of(None);
        let snapshot = self.store.snapshot(CRDS);
        let mut before = std::mem::take(&mut *known).into_iter().peekable();
        for stored in snapshot.range(&everything) {
            while before.next_if(|it| it.stored.key < stored.key).is_some() {}
            let same = before.next_if(|it| it.stored.key == stored.key);
            known.push(match same {
                Some(it) if Arc::ptr_eq(&it.stored, stored) => it,
                changed => Arc::new(Definition::read(row, stored, changed.as_deref())),
            });
        }
        known
    }

    /// Serves the CRDs that are stored.
    pub(super) fn load_definitions(&self) {
        let Some(row) = self.definitions_row() else { return };
        // Held until the new rows are in place, so that the newest state wins.
        let definitions = self.definitions(&row);
        let rows: Vec<Row> = definitions.iter().flat_map(|it| it.rows()).collect();
        self.change_scheme(|scheme| scheme.set_custom(rows));
        drop(definitions);
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
        let definitions = self.definitions(row).clone();
        let all: Vec<&Object> = definitions.iter().map(|it| &it.crd).collect();
        let now = self.entropy.now_seconds();
        for Definition { stored, crd, .. } in definitions.iter().map(Arc::as_ref) {
            let Some(next) = crd::reconcile(crd, &all, &now) else {
                continue;
            };
            if self.write_definition(row, stored, &next) {
                return true;
            }
        }
        self.finish_deleted_definitions(row)
    }

    /// Stores the next state of a CRD; false if there is nothing new in it, or somebody else was faster.
    fn write_definition(&self, row: &Row, stored: &Stored, next: &Object) -> bool {
        let Ok(body) = codec::encode(row, next) else {
            return false;
        };
        body.bytes != stored.body.bytes && self.replace_own(row, stored, body)
    }

    /// Deletes the objects of CRDs that are being deleted; whose are gone, goes. Whether a CRD was written.
    fn finish_deleted_definitions(&self, row: &Row) -> bool {
        // Each object that goes asks for this again: whoever is at it looks once more when he is done.
        if self.finishing.fetch_add(1, Ordering::SeqCst) > 0 {
            return false;
        }
        let mut is_written = false;
        loop {
            let asked = self.finishing.load(Ordering::SeqCst);
            while self.finish_deleted_definition(row) {
                is_written = true;
            }
            let done = self
                .finishing
                .compare_exchange(asked, 0, Ordering::SeqCst, Ordering::SeqCst);
            if done.is_ok() {
                return is_written;
            }
        }
    }

    /// One step of one of them; false if there is nothing to do.
    fn finish_deleted_definition(&self, row: &Row) -> bool {
        let definitions = self.definitions(row).clone();
        for definition in definitions.iter().filter(|it| it.crd.is_terminating()) {
            let Definition { stored, crd, .. } = &**definition;
            let Some(resource) = definition.resource() else {
                continue;
            };
            let instances = Row::custom(Arc::clone(resource), Arc::clone(&resource.storage));
            let now = self.entropy.now_seconds();
            let marked = crd::finalize(crd, true, &now);
            let left = marked.is_none() && self.delete_instances(&instances) > 0;
            let Some(next) = marked.or_else(|| crd::finalize(crd, left, &now)) else {
                continue;
            };
            let is_written = match next.finalizers().next() {
                None => self.remove_own(row, stored),
                Some(_) => self.write_definition(row, stored, &next),
            };
            if is_written {
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
