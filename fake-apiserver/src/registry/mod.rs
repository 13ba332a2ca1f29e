//! What a verb means. `Registry` is the one door from HTTP to state; it knows storage, watch and the vocabulary, and
//! nothing of HTTP.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::Notify;

use crate::api::object::Object;
use crate::api::resource::GroupResource;
use crate::api::status::Status;
use crate::entropy::Entropy;
use crate::storage::{Body, Key, Revision, Store, StoreError, Stored, World};
use crate::watch::{Fanout, Replicas, WatchStart, Watcher};

pub(crate) mod scheme;
pub(crate) mod schema;
pub(crate) mod codec;
pub(crate) mod body;
pub(crate) mod decode;
pub(crate) mod strategy;
pub(crate) mod metadata;
pub(crate) mod quantity;
pub(crate) mod kinds;
pub(crate) mod custom;
pub(crate) mod read;
pub(crate) mod continue_token;
pub(crate) mod write;
pub(crate) mod create;
pub(crate) mod update;
pub(crate) mod patch;
pub(crate) mod modify;
pub(crate) mod managed_fields;
pub(crate) mod delete;
pub(crate) mod subresources;
pub(crate) mod definitions;

use scheme::{Row, Scheme};

/// All state and its rules.
#[derive(Debug)]
pub(crate) struct Registry {
    /// The objects.
    pub(crate) store: Arc<Store>,
    /// Who waits for changes of them.
    pub(crate) fanout: Arc<Fanout>,
    /// Who does not see all of them.
    pub(crate) replicas: Arc<Replicas>,
    /// The clock and the random numbers.
    pub(crate) entropy: Entropy,
    /// Signalled by each commit, for readers who wait for a revision.
    pub(crate) committed: Notify,
    /// Signalled when the served resources change.
    pub(crate) definitions_changed: Notify,
    /// Held while the served resources are made from the stored CRDs, so that the newest state wins.
    definitions: Mutex<()>,
    /// The served resources. Replaced as a whole when a CRD changes.
    scheme: RwLock<Arc<Scheme>>,
}

impl Registry {
    /// A registry of `world`. CRDs in it are served.
    pub(crate) fn new(world: World, history_bound: usize, entropy: Entropy) -> Self {
        let registry = Self {
            store: Arc::new(Store::new(world, history_bound)),
            fanout: Arc::default(),
            replicas: Arc::default(),
            entropy,
            committed: Notify::new(),
            definitions_changed: Notify::new(),
            definitions: Mutex::default(),
            scheme: RwLock::default(),
        };
        registry.load_definitions();
        registry
    }

    /// The served resources as they are now.
    pub(crate) fn scheme(&self) -> Arc<Scheme> {
        Arc::clone(&self.scheme.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the served resources.
    fn change_scheme(&self, change: impl FnOnce(&mut Scheme)) {
        let mut scheme = self.scheme.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut scheme));
    }

    /// Starts a watcher.
    pub(crate) fn start_watch(&self, start: WatchStart) -> Watcher {
        Watcher::new(Arc::clone(&self.store), Arc::clone(&self.fanout), start)
    }

    /// Forgets history up to `revision`; watchers and pages below it get 410.
    pub(crate) fn compact(&self, revision: Revision) {
        self.store.compact(revision);
        // A sleeping cursor lies at the newest revision or above: only those who lag can be hit, and they are awake.
    }

    /// Replaces all state: watches end, CRDs are read anew.
    pub(crate) fn restore(&self, world: World) {
        self.store.replace(world);
        self.load_definitions();
        self.fanout.wake_all();
        self.committed.notify_waiters();
    }

    fn insert(&self, row: &Row, key: Key, body: Body) -> Result<Arc<Stored>, StoreError> {
        let stored = self.store.create(&row.storage, key, body)?;
        self.signal(row, &stored.key);
        Ok(stored)
    }

    fn replace(&self, row: &Row, old: &Stored, body: Body) -> Result<Arc<Stored>, StoreError> {
        let stored = self.store.update(&row.storage, &old.key, old.revision, body)?;
        self.signal(row, &stored.key);
        Ok(stored)
    }

    fn remove(&self, row: &Row, old: &Stored) -> Result<Revision, StoreError> {
        let revision = self.store.delete(&row.storage, &old.key, old.revision)?;
        self.signal(row, &old.key);
        if row.is_custom() {
            self.instance_removed();
        }
        Ok(revision)
    }

    /// Tells everyone concerned of a commit.
    fn signal(&self, row: &Row, key: &Key) {
        match self.replicas.move_with_commits() {
            true => self.fanout.wake_all(),
            false => self.fanout.wake(&row.storage, key),
        }
        self.committed.notify_waiters();
        if *row.storage == *scheme::CRDS {
            self.definitions_written();
        }
    }

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

    /// Creating in a namespace needs the namespace, and one that is not being deleted (rules R2, R3).
    fn check_namespace(&self, row: &Row, namespace: &str, name: &str) -> Result<(), Status> {
        if !row.info.is_namespaced() || namespace.is_empty() {
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
}

/// An unsigned number, or the error Go's strconv gives.
pub(crate) fn parse_uint(text: &str) -> Result<u64, String> {
    let quoted = || crate::api::field::quote(text);
    if text.is_empty() || !text.bytes().all(|it| it.is_ascii_digit()) {
        return Err(format!("strconv.ParseUint: parsing {}: invalid syntax", quoted()));
    }
    text.parse()
        .map_err(|_| format!("strconv.ParseUint: parsing {}: value out of range", quoted()))
}
