//! Manages CustomResourceDefinitions: serves stored ones, updates changed ones, and removes deleted ones with their
//! objects. kube-apiserver's CRD controllers do this asynchronously; here it happens directly after the write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::custom::crd::{self, CrdNames, UsedNames};
use super::custom::definition::CustomResource;
use super::managed_fields::{self, Manager, Types};
use super::reader::Reader;
use super::registrations::versions_served;
use super::scheme::codec;
use super::scheme::{CRDS, Row, Scheme};
use super::writer::Writer;
use crate::api::object::Object;
use crate::storage::{Change, Key, KeyRange, Revision, Store, Stored};

/// A stored CRD with its parsed form, which is reused until the CRD is written again.
#[derive(Debug)]
struct Definition {
    stored: Arc<Stored>,
    group: String,
    names: CrdNames,
    /// Versions with `served: true` in the spec.
    served: BTreeSet<String>,
    /// The parsed resource, if the CRD is established or being deleted; reused until its identity changes.
    resource: Option<Arc<CustomResource>>,
    /// The CRD, while it is being deleted or its status has to be updated.
    unsettled: Option<Arc<Object>>,
}

/// The parsed CRDs of a saved state. A server that starts with this state does not parse them again.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadDefinitions(Arc<BTreeMap<Key, Arc<Definition>>>);

impl Definition {
    fn read(row: &Row, stored: &Arc<Stored>, before: Option<&Self>) -> Self {
        let crd = codec::decode(row, stored);
        let is_needed = CustomResource::is_established(&crd) || crd.is_terminating();
        let identity = CustomResource::identity(&crd);
        let same = before
            .and_then(|it| it.resource.clone())
            .filter(|it| it.definition == identity);
        let parse = || CustomResource::parse(&crd).map(Arc::new);
        Self {
            stored: Arc::clone(stored),
            group: crd::group(&crd).to_owned(),
            names: CrdNames::accepted(&crd),
            served: versions_served(&crd),
            resource: same.or_else(|| is_needed.then(parse).flatten()),
            unsettled: (crd.is_terminating() || !crd::is_settled(&crd)).then(|| Arc::new(crd)),
        }
    }

    /// Returns the rows of all served versions.
    fn rows(&self) -> Vec<Arc<Row>> {
        let Some(resource) = &self.resource else {
            return Vec::new();
        };
        let row = |version: &Arc<_>| Arc::new(Row::custom(Arc::clone(resource), Arc::clone(version)));
        resource.served.iter().map(row).collect()
    }
}

/// The stored CRDs as last read. Changes are read from the log, so that the cost does not depend on the number of CRDs.
#[derive(Debug, Default)]
struct StoredDefinitions {
    /// The epoch of the store and the revision of the last read; `None` before the first read.
    cursor: Option<(u64, Revision)>,
    known: BTreeMap<Key, Arc<Definition>>,
    /// The CRDs of the initial state, as parsed by another server.
    initial: ReadDefinitions,
    /// Keys of the CRDs that are not settled.
    unsettled: BTreeSet<Key>,
    /// The accepted names of each group.
    used: BTreeMap<String, UsedNames>,
    /// The served rows of each CRD.
    served: BTreeMap<Key, Vec<Arc<Row>>>,
    /// CRDs with rows that may have changed.
    written: BTreeSet<Key>,
    /// The groups of CRDs written since the last [`Definitions::take_written_groups`].
    written_groups: BTreeSet<String>,
}

impl StoredDefinitions {
    /// Reads the CRDs written since the last call.
    fn catch_up(&mut self, store: &Store, row: &Row) {
        let fresh = self
            .cursor
            .and_then(|(epoch, revision)| Some((epoch, store.changes_after(CRDS, epoch, revision, usize::MAX).ok()?)));
        let Some((epoch, fresh)) = fresh else {
            return self.read_all(store, row);
        };
        self.cursor = Some((epoch, fresh.revision));
        // If a CRD has changed several times, only the last change is applied.
        let changed: BTreeMap<&Key, &Arc<Change>> = fresh.changes.iter().map(|it| (&it.object().key, it)).collect();
        for (key, change) in changed {
            self.set(row, key, change.current.as_ref());
        }
    }

    fn read_all(&mut self, store: &Store, row: &Row) {
        let everything = store.everything();
        self.cursor = Some((everything.epoch, everything.revision));
        let mut gone: BTreeSet<Key> = self.known.keys().cloned().collect();
        let crds = everything.resources.iter().find(|(resource, _)| **resource == *CRDS);
        for stored in crds
            .iter()
            .flat_map(|(_, crds)| crds.range(&KeyRange::of(None)).cloned().collect::<Vec<_>>())
        {
            gone.remove(&stored.key);
            self.set(row, &stored.key, Some(&stored));
        }
        gone.iter().for_each(|key| self.set(row, key, None));
    }

    /// Records the current state of a CRD.
    fn set(&mut self, row: &Row, key: &Key, stored: Option<&Arc<Stored>>) {
        let before = self.known.remove(key);
        if let Some(before) = &before {
            self.written_groups.insert(before.group.clone());
            if let Some(used) = self.used.get_mut(&before.group) {
                used.remove(&before.names);
            }
        }
        self.unsettled.remove(key);
        self.written.insert(key.clone());
        let Some(stored) = stored else { return };
        let is_read = |it: &&Arc<Definition>| Arc::ptr_eq(&it.stored, stored);
        let read = before.as_ref().into_iter().chain(self.initial.0.get(key)).find(is_read);
        let definition = match read {
            Some(read) => Arc::clone(read),
            None => Arc::new(Definition::read(row, stored, before.as_deref())),
        };
        self.written_groups.insert(definition.group.clone());
        self.used
            .entry(definition.group.clone())
            .or_default()
            .add(&definition.names);
        if definition.unsettled.is_some() {
            self.unsettled.insert(key.clone());
        }
        self.known.insert(key.clone(), definition);
    }

    /// Returns the CRDs that are not settled, sorted by name.
    fn unsettled(&self) -> impl Iterator<Item = (&Definition, &Arc<Object>)> {
        let known = self.unsettled.iter().filter_map(|key| self.known.get(key));
        known.filter_map(|it| Some((&**it, it.unsettled.as_ref()?)))
    }

    /// Returns the first CRD whose status has to be updated, with the next state that kube-apiserver's controllers
    /// write; `None` if there is no such CRD.
    fn next_state(&self, now: &str) -> Option<(Arc<Stored>, Object)> {
        let none = UsedNames::default();
        self.unsettled().find_map(|(it, crd)| {
            let used = self.used.get(&it.group).unwrap_or(&none);
            Some((Arc::clone(&it.stored), crd::reconcile(crd, used, now)?))
        })
    }

    /// Updates the served rows of the CRDs that were written.
    fn serve(&mut self, scheme: &mut Scheme) {
        for key in std::mem::take(&mut self.written) {
            let rows = self.known.get(&key).map(|it| it.rows()).unwrap_or_default();
            let before = self.served.remove(&key).unwrap_or_default();
            let is_same = |(old, new): (&Arc<Row>, &Arc<Row>)| old.definition() == new.definition();
            if rows.len() == before.len() && before.iter().zip(&rows).all(is_same) {
                // The rows are unchanged and are kept, so that watches of these resources continue.
                self.served.insert(key, before);
                continue;
            }
            scheme.replace_custom(&before, &rows);
            self.served.insert(key, rows);
        }
    }
}

/// A function that deletes an object of a CRD that is being deleted.
type Delete<'a> = &'a dyn Fn(&Row, &Arc<Stored>);

/// The CRDs of a server, and the resources that it serves for them.
#[derive(Debug)]
pub(crate) struct Definitions {
    reader: Arc<Reader>,
    writer: Arc<Writer>,
    /// The stored CRDs as they were last read.
    stored: Mutex<StoredDefinitions>,
    /// Number of requests to finish deleted CRDs since the current pass began; 0 between passes.
    finishing: AtomicUsize,
    /// Signalled when the served resources may have changed.
    pub(crate) changed: Arc<Notify>,
}

impl Definitions {
    /// Creates the definitions. `initial` contains the CRDs of the initial state, if another server has parsed them.
    pub(super) fn new((reader, writer): (Arc<Reader>, Arc<Writer>), initial: ReadDefinitions) -> Self {
        let stored = StoredDefinitions {
            initial,
            ..StoredDefinitions::default()
        };
        Self {
            reader,
            writer,
            stored: Mutex::new(stored),
            finishing: AtomicUsize::new(0),
            changed: Arc::default(),
        }
    }

    /// Returns the row for reading and writing CRDs.
    fn row(&self) -> Option<Arc<Row>> {
        self.reader
            .scheme()
            .lookup("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    }

    /// Returns the stored CRDs in their current state. Only CRDs written since the last call are read.
    fn stored(&self, row: &Row) -> MutexGuard<'_, StoredDefinitions> {
        let mut definitions = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        definitions.catch_up(&self.reader.store, row);
        definitions
    }

    /// Returns the CRDs in their current state, for servers that start with it.
    pub(crate) fn read(&self) -> ReadDefinitions {
        let known = self.row().map(|row| self.stored(&row).known.clone());
        ReadDefinitions(Arc::new(known.unwrap_or_default()))
    }

    /// Removes and returns the groups of the CRDs written since the last call.
    pub(super) fn take_written_groups(&self) -> BTreeSet<String> {
        let taken = self
            .row()
            .map(|row| std::mem::take(&mut self.stored(&row).written_groups));
        taken.unwrap_or_default()
    }

    /// Returns the versions of a group that are served according to the specs of CRDs.
    pub(super) fn served_versions(&self, group: &str) -> BTreeSet<String> {
        let Some(row) = self.row() else { return BTreeSet::new() };
        let definitions = self.stored(&row);
        let of_group = definitions.known.values().filter(|it| it.group == group);
        of_group.flat_map(|it| it.served.iter().cloned()).collect()
    }

    /// Returns `true` if a CRD serves a version of a group according to its spec.
    pub(super) fn serves(&self, group: &str, version: &str) -> bool {
        let Some(row) = self.row() else { return false };
        let definitions = self.stored(&row);
        let mut of_group = definitions.known.values().filter(|it| it.group == group);
        of_group.any(|it| it.served.contains(version))
    }

    /// Serves the stored CRDs.
    pub(super) fn load(&self) {
        let Some(row) = self.row() else { return };
        // Locked until the new rows are set, so that the newest state is served last.
        let mut definitions = self.stored(&row);
        if !definitions.written.is_empty() {
            self.reader.change_scheme(|scheme| definitions.serve(scheme));
        }
        drop(definitions);
        self.changed.notify_waiters();
    }

    /// Called after a write to a CRD: updates the status of all CRDs step by step, with one write for each step,
    /// finishes deletions, and then updates the served resources.
    pub(super) fn written(&self, delete: Delete<'_>) {
        let Some(row) = self.row() else { return };
        // A step may free or use names that other CRDs request. The loop ends because each step advances one CRD.
        while self.reconcile_one(&row, delete) {}
        self.load();
    }

    /// Updates the status of one CRD, or finishes the deletion of CRDs if no status has to be updated. Returns `false`
    /// if no CRD was written.
    fn reconcile_one(&self, row: &Row, delete: Delete<'_>) -> bool {
        let now = self.reader.entropy.now_seconds();
        let next = self.stored(row).next_state(&now);
        match next {
            Some((stored, next)) => self.write(row, &stored, &next),
            None => self.finish_deleted_all(row, delete),
        }
    }

    /// Stores the next state of a CRD. Returns `false` if the state is unchanged or cannot be encoded, or if the CRD
    /// was written in the meantime.
    fn write(&self, row: &Row, stored: &Stored, next: &Object) -> bool {
        let now = self.reader.entropy.now_seconds();
        let manager = Manager {
            name: "kube-apiserver",
            api_version: &row.api_version,
            subresource: "status",
            time: &now,
            reset: row.unowned_paths("status"),
        };
        let types = Types {
            schema: row.schema(),
            other: &|object, version| row.in_version(object, version),
        };
        let (before, mut next) = (codec::decode(row, stored), next.clone());
        managed_fields::track_update(&types, Some(&before), &mut next, &manager);
        let Ok(codec::Encoded { body, .. }) = codec::encode(row, &next) else {
            return false;
        };
        body.bytes != stored.body.bytes && self.writer.replace(row, stored, body).is_ok()
    }

    /// Deletes the objects of CRDs that are being deleted, and then the CRDs. Returns `true` if this call has written a
    /// CRD.
    fn finish_deleted_all(&self, row: &Row, delete: Delete<'_>) -> bool {
        // A deletion of an object calls this function again; the running pass is then repeated.
        if self.finishing.fetch_add(1, Ordering::SeqCst) > 0 {
            return false;
        }
        let mut is_written = false;
        loop {
            let asked = self.finishing.load(Ordering::SeqCst);
            while self.finish_deleted(row, delete) {
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

    /// Performs one step of the deletion of one CRD; returns `false` if no CRD was written.
    fn finish_deleted(&self, row: &Row, delete: Delete<'_>) -> bool {
        let deleted = |(it, crd): (&Definition, &Arc<Object>)| {
            let resource = it.resource.clone().filter(|_| crd.is_terminating())?;
            Some((Arc::clone(&it.stored), Arc::clone(crd), resource))
        };
        // The lock is not held while objects are deleted.
        let deleted: Vec<_> = self.stored(row).unsettled().filter_map(deleted).collect();
        for (stored, crd, resource) in &deleted {
            let instances = Row::custom(Arc::clone(resource), Arc::clone(&resource.storage));
            let now = self.reader.entropy.now_seconds();
            let marked = crd::finalize(crd, true, &now);
            let left = marked.is_none() && self.delete_instances(&instances, delete) > 0;
            let Some(next) = marked.or_else(|| crd::finalize(crd, left, &now)) else {
                continue;
            };
            let is_written = match next.finalizers().next() {
                None => self.writer.remove(row, stored).is_ok(),
                Some(_) => self.write(row, stored, &next),
            };
            if is_written {
                return true;
            }
        }
        false
    }

    /// Deletes every object of a resource; returns the number of objects that remain, for example because of
    /// finalizers.
    fn delete_instances(&self, row: &Row, delete: Delete<'_>) -> usize {
        let everything = KeyRange::of(None);
        let snapshot = self.reader.store.snapshot(&row.storage);
        let mut left = 0;
        for stored in snapshot.range(&everything) {
            delete(row, stored);
            left += usize::from(self.reader.store.get(&row.storage, &stored.key).is_some());
        }
        left
    }

    /// Called after the removal of a custom resource, because the deletion of its CRD may wait for this.
    pub(super) fn instance_removed(&self, delete: Delete<'_>) {
        let Some(row) = self.row() else { return };
        if self.finish_deleted_all(&row, delete) {
            self.written(delete);
        }
    }
}
