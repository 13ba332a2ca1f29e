//! `FakeSource`: an in-memory source of objects.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::stream;
use kube::core::Status;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::list_watch::{Body, ListOptions, ListWatch, WatchOptions};
use crate::{Error, ObjectKey};

/// Maximum number of changes in the history. A watch from an older version fails with status 410.
const REMEMBERED: usize = 16_384;

/// A source of objects that does not need a server, for tests and for data from systems other than Kubernetes
/// (client-go's `FakeControllerSource`). Clones share the source.
///
/// Each change increments the version. Watches can resume from any version in the history, and support streaming lists.
/// Tests can make watches miss changes.
///
/// ```
/// use informer::cache::FakeSource;
///
/// let source = FakeSource::new();
/// source.add(serde_json::json!({"metadata": {"name": "a", "namespace": "shop"}})); // version 1
/// source.delete_unseen("shop", "a"); // watches receive no event; only a new list shows the deletion
/// source.reset_watches(); // ends all watches and clears the history
/// ```
#[derive(Clone, Default)]
pub struct FakeSource {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Guards objects and history.
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    version: u64,
    objects: BTreeMap<ObjectKey, Value>,
    history: VecDeque<Change>,
    /// The newest version that is no longer in the history.
    forgotten: u64,
    /// Counter that is incremented to end all open watches.
    epoch: u64,
    list_error: Option<Status>,
}

#[derive(Clone)]
struct Change {
    version: u64,
    kind: &'static str,
    object: Value,
    is_seen: bool,
}

impl FakeSource {
    /// Creates an empty source at version 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an object, or replaces the existing object with the same key.
    ///
    /// # Panics
    ///
    /// Panics if the object cannot be serialized as JSON.
    pub fn add(&self, object: impl Serialize) {
        self.put(object, true);
    }

    /// Adds an object without sending an event to watches.
    ///
    /// # Panics
    ///
    /// Panics if the object cannot be serialized as JSON.
    pub fn add_unseen(&self, object: impl Serialize) {
        self.put(object, false);
    }

    /// Deletes an object if it exists. Cluster-scoped objects have the namespace `""`.
    pub fn delete(&self, namespace: &str, name: &str) {
        self.take(namespace, name, true);
    }

    /// Deletes an object without sending an event to watches.
    pub fn delete_unseen(&self, namespace: &str, name: &str) {
        self.take(namespace, name, false);
    }

    /// Ends all watches and clears the history: a watch from an earlier version fails with status 410.
    pub fn reset_watches(&self) {
        let mut state = self.lock();
        state.forgotten = state.version;
        state.history.clear();
        state.epoch += 1;
        drop(state);
        self.shared.changed.notify_waiters();
    }

    /// Makes all further list requests fail with this status; streaming lists are not affected. `None` makes list
    /// requests succeed again.
    pub fn fail_lists(&self, status: Option<Status>) {
        self.lock().list_error = status;
    }

    fn put(&self, object: impl Serialize, is_seen: bool) {
        let mut object = serde_json::to_value(object).expect("Kubernetes objects can be serialized as JSON");
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        let key = key_of(&text("namespace"), &text("name"));
        let mut state = self.lock();
        state.version += 1;
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        let old = state.objects.insert(key, object.clone());
        let kind = if old.is_some() { "MODIFIED" } else { "ADDED" };
        self.remember(state, kind, object, is_seen);
    }

    fn take(&self, namespace: &str, name: &str, is_seen: bool) {
        let mut state = self.lock();
        if let Some(mut object) = state.objects.remove(&key_of(namespace, name)) {
            state.version += 1;
            object["metadata"]["resourceVersion"] = state.version.to_string().into();
            self.remember(state, "DELETED", object, is_seen);
        }
    }

    fn remember(&self, mut state: MutexGuard<'_, State>, kind: &'static str, object: Value, is_seen: bool) {
        let version = state.version;
        state.history.push_back(Change {
            version,
            kind,
            object,
            is_seen,
        });
        if state.history.len() > REMEMBERED
            && let Some(oldest) = state.history.pop_front()
        {
            state.forgotten = oldest.version;
        }
        drop(state);
        self.shared.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next events of a watch. Returns them with the new cursor; `None` if the watch has ended.
    async fn next(self, mut at: Cursor) -> Option<(Result<Bytes, Error>, (Self, Cursor))> {
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            {
                let state = self.lock();
                if at.is_over || at.epoch != state.epoch {
                    return None;
                }
                let mut lines = String::new();
                if std::mem::take(&mut at.sends_initial) {
                    for object in state.objects.values() {
                        push_line(&mut lines, "ADDED", object);
                    }
                    push_line(&mut lines, "BOOKMARK", &initial_end(state.version));
                    at.version = state.version;
                } else if at.version < state.forgotten {
                    let status = Status::failure("too old resource version", "Expired").with_code(410);
                    push_line(&mut lines, "ERROR", &json!(status));
                    at.is_over = true;
                } else {
                    for change in state.history.iter().filter(|it| it.version > at.version && it.is_seen) {
                        push_line(&mut lines, change.kind, &change.object);
                    }
                    at.version = at.version.max(state.version);
                }
                if !lines.is_empty() {
                    drop(state);
                    return Some((Ok(Bytes::from(lines)), (self.clone(), at)));
                }
            }
            changed.await;
        }
    }
}

/// Position of a watch in the history.
struct Cursor {
    version: u64,
    epoch: u64,
    sends_initial: bool,
    is_over: bool,
}

fn key_of(namespace: &str, name: &str) -> ObjectKey {
    if namespace.is_empty() {
        ObjectKey::cluster(name)
    } else {
        ObjectKey::new(namespace, name)
    }
}

fn push_line(lines: &mut String, kind: &str, object: &Value) {
    lines.push_str(&json!({"type": kind, "object": object}).to_string());
    lines.push('\n');
}

fn initial_end(version: u64) -> Value {
    json!({"metadata": {
        "resourceVersion": version.to_string(), "annotations": {"k8s.io/initial-events-end": "true"},
    }})
}

impl ListWatch for FakeSource {
    async fn list(&self, _options: &ListOptions) -> Result<Body, Error> {
        let state = self.lock();
        if let Some(status) = &state.list_error {
            return Err(Error::from_status(status.clone()));
        }
        let items: Vec<_> = state.objects.values().collect();
        let list = json!({"metadata": {"resourceVersion": state.version.to_string()}, "items": items});
        Ok(Box::pin(stream::iter([Ok(Bytes::from(list.to_string()))])))
    }

    async fn watch(&self, options: &WatchOptions) -> Result<Body, Error> {
        let at = Cursor {
            version: options.resource_version.number().unwrap_or_default(),
            epoch: self.lock().epoch,
            sends_initial: options.send_initial_events,
            is_over: false,
        };
        let source = self.clone();
        Ok(Box::pin(stream::unfold((source, at), |(source, at)| source.next(at))))
    }

    fn name(&self) -> String {
        "a fake source".to_owned()
    }
}

impl fmt::Debug for FakeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        write!(f, "FakeSource({} objects at {})", state.objects.len(), state.version)
    }
}
