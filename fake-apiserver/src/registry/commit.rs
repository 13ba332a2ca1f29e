//! Commits of the verbs, each of which tells everyone concerned: the CRDs it defines, the Roles, the configuration of
//! admission, the server's own controllers.

use std::sync::Arc;

use tokio::time::Instant;

use super::Registry;
use super::own_loops::OwnLoops;
use super::registrations::API_SERVICES;
use super::scheme::{CRDS, Row};
use super::writer::expiry::EVENTS;
use crate::api::options::DeleteOptions;
use crate::storage::{Body, Key, Revision, StoreError, Stored, World};

impl Registry {
    /// Replaces all state: watches end, CRDs are read anew.
    pub(crate) fn restore(&self, world: World) {
        self.writer.replace_all(world);
        self.authorization.roles_replaced();
        self.admission.invalidate();
        self.definitions.load();
        self.sync_registrations();
        self.writer.events_replaced();
        self.writer.wake_all();
    }

    /// Stores a new object.
    pub(super) fn insert(&self, row: &Row, key: Key, body: Body) -> Result<Arc<Stored>, StoreError> {
        let stored = self.writer.insert(row, key, body)?;
        self.signal(row, &stored.key);
        Ok(stored)
    }

    /// Stores an object in place of `old`, if that is still the one.
    pub(super) fn replace(&self, row: &Row, old: &Stored, body: Body) -> Result<Arc<Stored>, StoreError> {
        let stored = self.writer.replace(row, old, body)?;
        self.signal(row, &stored.key);
        Ok(stored)
    }

    /// Removes `old`, if it is still the one.
    pub(super) fn remove(&self, row: &Row, old: &Stored) -> Result<Revision, StoreError> {
        let revision = self.writer.remove(row, old)?;
        self.signal(row, &old.key);
        if row.is_custom() {
            self.definitions.instance_removed(&self.deletes());
            self.sync_registrations();
        }
        Ok(revision)
    }

    /// Removes the Events whose time is over, oldest first, and says when the next one's is.
    pub(crate) fn expire_events(&self) -> Option<Instant> {
        let (now, leases) = (Instant::now(), &self.writer.event_leases);
        let row = self.reader.scheme().lookup("", "v1", EVENTS)?;
        loop {
            let next = leases.pop(now);
            let Some((key, revision)) = next else { break };
            let stored = self.reader.store.get(&row.storage, &key);
            // An Event that was written or removed in between has another expiry, or none.
            if let Some(stored) = stored.filter(|it| it.revision == revision)
                && self.remove(&row, &stored).is_ok()
            {
                leases.count_expired();
            }
        }
        leases.first()
    }

    /// Deletes one object of a CRD that is being deleted. An object that changed meanwhile is tried again after that
    /// write. Custom resources have no grace period, so none is left marked.
    fn deletes(&self) -> impl Fn(&Row, &Stored) {
        |row, stored| drop(self.delete_once(row, stored, &DeleteOptions::default()))
    }

    /// Tells everyone concerned of a commit.
    fn signal(&self, row: &Row, key: &Key) {
        if *row.storage == *CRDS {
            self.definitions.written(&self.deletes());
            self.sync_registrations();
        }
        self.authorization.roles_written(row, key);
        self.admission.written(row, key);
        let Self { reader, writer, .. } = self;
        OwnLoops { reader, writer }.sync(row, key);
        if *row.storage == *API_SERVICES {
            self.sync_registration_of(key);
        }
    }
}
