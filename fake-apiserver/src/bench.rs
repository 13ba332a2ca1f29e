//! Internals for the project's benchmarks, which measure them separately. Not a public interface.

use std::time::Duration;

use tokio::time::Instant;

use crate::api::json::Value;
use crate::api::object::Object;
use crate::api::selector::{FieldSelector, LabelSelector};
use crate::api::status::Status;
use crate::registry::managed_fields::{self, Manager, Types, single_version};
use crate::registry::types::schema::SchemaRef;
use crate::registry::types::schema::builtin::shape_of;
use crate::server::ApiServer;
use crate::watch::{self, Filter, WatchScope, WatchStart};

/// A cursor into a resource's log, without a response body.
#[derive(Debug)]
pub struct Watcher(watch::Watcher);

impl Watcher {
    /// Watches all objects of a built-in resource from the current state on; `storage` is the name of the resource in
    /// storage.
    pub fn open(server: &ApiServer, storage: &str) -> Self {
        let registry = &server.endpoints.registry;
        let (labels, fields) = (LabelSelector::default(), FieldSelector::default());
        Self(registry.reader.start_watch(WatchStart {
            resource: storage.into(),
            filter: Filter {
                scope: WatchScope::All,
                labels,
                fields,
            },
            initial: None,
            after: registry.reader.store.revision(),
            bookmarks: false,
            initial_end_bookmark: false,
            horizon: None,
            deadline: Instant::now() + Duration::from_secs(3600),
        }))
    }

    /// Waits for events and returns their number.
    pub async fn next_batch(&mut self) -> usize {
        self.0.next_batch().await.len()
    }
}

/// An object in the server's internal representation.
#[derive(Clone, Debug)]
pub struct Document(Object);

impl From<serde_json::Value> for Document {
    fn from(value: serde_json::Value) -> Self {
        match value.into() {
            Value::Object(map) => Self(Object(map)),
            _ => Self(Object::default()),
        }
    }
}

/// Applies and tracks writes of Pods with the field manager, without the other parts of the server.
#[derive(Clone, Copy, Debug)]
pub struct FieldManager<'a> {
    /// Field manager of the writes.
    pub manager: &'a str,
}

impl FieldManager<'_> {
    fn of_pods<T>(&self, work: impl FnOnce(&Types<'_, '_>, &Manager<'_>) -> T) -> T {
        let types = Types {
            schema: shape_of("", "v1", "Pod").map_or(SchemaRef::Deduced, SchemaRef::Builtin),
            other: &single_version,
        };
        let manager = Manager {
            name: self.manager,
            api_version: "v1",
            subresource: "",
            time: "2026-01-01T00:00:00Z",
            reset: &[&["status"]],
        };
        work(&types, &manager)
    }

    /// Applies a configuration to the live object.
    pub fn apply(&self, live: &Document, applied: &Document) -> Result<Document, Status> {
        self.of_pods(|types, manager| managed_fields::apply(types, Some(&live.0), &applied.0, manager, "Pod", false))
            .map(Document)
    }

    /// Adds the manager of the changed fields to the `managedFields` of `new`.
    pub fn track_update(&self, live: &Document, new: &mut Document) {
        self.of_pods(|types, manager| managed_fields::track_update(types, Some(&live.0), &mut new.0, manager));
    }
}
