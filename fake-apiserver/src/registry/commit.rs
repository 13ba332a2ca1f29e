//! Commits the writes of the verbs. Each commit notifies the components that depend on the written object, such as the
//! definitions, authorization, admission, and the server's own controllers.

use std::sync::Arc;

use tokio::time::Instant;

use super::Registry;
use super::addresses::SERVICES;
use super::own_loops::OwnLoops;
use super::registrations::API_SERVICES;
use super::scheme::{CRDS, Row};
use super::writer::expiry::EVENTS;
use crate::api::options::DeleteOptions;
use crate::storage::{Body, Key, Revision, StoreError, Stored, World};

impl Registry {
    /// Replaces all stored objects: ends watches, and reads all CRDs again.
    pub(crate) fn restore(&self, world: World) {
        self.writer.replace_all(world);
        self.authorization.roles_replaced();
        self.admission.invalidate();
        self.definitions.load();
        self.sync_registrations();
        self.writer.events_replaced();
        self.writer.wake_all();
    }

    /// Stores a new object, and notifies the affected components.
    pub(super) fn insert(&self, row: &Row, key: Key, body: Body) -> Result<Arc<Stored>, StoreError> {
        let stored = self.writer.insert(row, key, body)?;
        self.signal(row, &stored.key);
        self.sync_addresses(row, None, &stored.key);
        Ok(stored)
    }

    /// Replaces `old` with an object if `old` is still stored, and notifies the affected components.
    pub(super) fn replace(&self, row: &Row, old: &Stored, body: Body) -> Result<Arc<Stored>, StoreError> {
        let stored = self.writer.replace(row, old, body)?;
        self.signal(row, &stored.key);
        self.sync_addresses(row, Some(old), &stored.key);
        Ok(stored)
    }

    /// Removes `old` if it is still stored, and notifies the affected components.
    pub(super) fn remove(&self, row: &Row, old: &Stored) -> Result<Revision, StoreError> {
        let revision = self.writer.remove(row, old)?;
        self.signal(row, &old.key);
        self.sync_addresses(row, Some(old), &old.key);
        self.delete_endpoints_of(row, &old.key);
        if row.is_custom() {
            self.definitions.instance_removed(&self.deletes());
            self.sync_registrations();
        }
        Ok(revision)
    }

    /// Deletes the Endpoints of a Service that was removed, as the Service's registry in kube-apiserver does
    /// (`afterDelete`), so that a new Service never has the old addresses.
    fn delete_endpoints_of(&self, row: &Row, key: &Key) {
        if *row.storage != *SERVICES {
            return;
        }
        let Some(endpoints) = self.reader.scheme().lookup("", "v1", "endpoints") else {
            return;
        };
        if let Some(stored) = self.reader.store.get(&endpoints.storage, key) {
            self.deletes()(&endpoints, &stored);
        }
    }

    /// Removes expired Events, oldest first, and returns the next expiry time.
    pub(crate) fn expire_events(&self) -> Option<Instant> {
        let (now, leases) = (Instant::now(), &self.writer.event_leases);
        let row = self.reader.scheme().lookup("", "v1", EVENTS)?;
        loop {
            let next = leases.pop(now);
            let Some((key, revision)) = next else { break };
            let stored = self.reader.store.get(&row.storage, &key);
            // If the Event was written again or removed in the meantime, this expiry is outdated.
            if let Some(stored) = stored.filter(|it| it.revision == revision)
                && self.remove(&row, &stored).is_ok()
            {
                leases.count_expired();
            }
        }
        leases.first()
    }

    /// Returns a function that deletes one object because its CRD or its Service is deleted. If the object has changed
    /// in the meantime, the function retries with the new version, because the update does not trigger this deletion
    /// again. These objects do not have a grace period, so they are removed immediately unless they have finalizers.
    fn deletes(&self) -> impl Fn(&Row, &Arc<Stored>) {
        |row, stored| {
            let mut current = Some(Arc::clone(stored));
            while let Some(stored) = current
                && let Ok(None) = self.delete_once(row, &stored, &DeleteOptions::default())
            {
                current = self.reader.store.get(&row.storage, &stored.key);
            }
        }
    }

    /// Updates the condition of an APIService after a call to its server. `result` contains the reason if the call
    /// failed.
    pub(crate) fn remote_called(&self, name: &str, result: Result<(), String>) {
        self.own_loops().remote_called(name, result);
    }

    fn own_loops(&self) -> OwnLoops<'_> {
        OwnLoops {
            reader: &self.reader,
            writer: &self.writer,
            checks: &self.remote_checks,
        }
    }

    /// Notifies the components that depend on a written resource: definitions, registrations, authorization, admission
    /// and the server's own controllers.
    fn signal(&self, row: &Row, key: &Key) {
        if *row.storage == *CRDS {
            self.definitions.written(&self.deletes());
            self.sync_registrations();
        }
        self.authorization.roles_written(row, key);
        self.admission.written(row, key);
        self.own_loops().sync(row, key);
        if *row.storage == *API_SERVICES {
            self.sync_registration_of(key);
        }
    }
}
