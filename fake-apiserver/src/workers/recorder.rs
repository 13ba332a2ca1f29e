//! Writes Events: human-readable messages of a controller about an object.

use super::{Api, RequestFailure};
use crate::api::json::{Value, json};
use crate::storage::Key;

/// Namespace of the Events of cluster-scoped objects.
const CLUSTER_EVENTS: &str = "default";

/// The object that an Event refers to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Regarding<'a> {
    /// Group and version of the object.
    pub(crate) api_version: &'a str,
    /// Kind of the object.
    pub(crate) kind: &'a str,
    /// Key of the object.
    pub(crate) key: &'a Key,
    /// UID of the object.
    pub(crate) uid: &'a str,
}

impl Api<'_> {
    /// Writes an Event of type Warning from `component` about an object.
    pub(crate) async fn warn(
        &self,
        component: &str,
        regarding: &Regarding<'_>,
        reason: &str,
        message: &str,
    ) -> Result<(), RequestFailure> {
        let key = regarding.key;
        let namespace = match key.namespace() {
            "" => CLUSTER_EVENTS,
            namespace => namespace,
        };
        let now = crate::entropy::seconds(self.now());
        let mut object = json!({
            "kind": regarding.kind, "apiVersion": regarding.api_version, "name": key.name(), "uid": regarding.uid,
        });
        if !key.namespace().is_empty() {
            object["namespace"] = Value::from(key.namespace());
        }
        let event = json!({
            "kind": "Event", "apiVersion": "v1",
            // Named as in client-go, but with a random number instead of the time, because Events may have the same
            // virtual time.
            "metadata": {"name": format!("{}.{:016x}", key.name(), self.entropy().next_u64()), "namespace": namespace},
            "involvedObject": object, "reason": reason, "message": message, "type": "Warning", "count": 1,
            "firstTimestamp": now, "lastTimestamp": now,
            "source": {"component": component}, "reportingComponent": component,
        });
        match self.create("events", namespace, &event).await {
            // A terminating or deleted namespace does not accept Events.
            Err(failure) if failure.is_namespace_terminating() || failure.is_not_found() => Ok(()),
            Err(failure) => Err(failure),
            Ok(_) => Ok(()),
        }
    }
}
