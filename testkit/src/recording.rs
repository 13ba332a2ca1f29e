//! Recorded event streams of a real cluster, for replay into a cluster or into watches.
//!
//! ```
//! use testkit::{Pace, Recording, TestCluster};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // kubectl get configmaps -A -w -o json --output-watch-events > stream.json
//! let stream = r#"
//!     {"type": "ADDED", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}}
//!     {"type": "DELETED", "object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}}
//! "#;
//! let recording = Recording::from_kubectl(stream)?;
//! assert_eq!(recording.len(), 2);
//! let cluster = TestCluster::start();
//! cluster.replay(&recording, Pace::Original).await;
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeSet;
use std::panic::Location;
use std::time::Duration;

use fake_apiserver::{Journal, WatchEventKind};
use serde_json::{Value, json};

use crate::report::{Failed, at_the_test};
use crate::test_cluster::TestCluster;
use crate::watches::Watches;

/// A recorded event stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    events: Vec<RecordedChange>,
}

/// One event of a [`Recording`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordedChange {
    /// Time since the first event. For a stream without times, it is derived from the times at which the objects were
    /// last changed, which are whole seconds.
    pub at: Duration,
    /// Type of the event.
    pub kind: WatchEventKind,
    /// The object in the event.
    pub object: Value,
}

/// Pace of a replay in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pace {
    /// Replays the events with the recorded intervals.
    Original,
    /// Replays all events at one instant, in order.
    AtOnce,
    /// Replays one event at intervals of this length, beginning with the first event immediately.
    Every(Duration),
}

/// Error for a stream that cannot be parsed. Its message contains the location in the stream and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingError(String);

impl std::fmt::Display for RecordingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RecordingError {}

impl Recording {
    /// Parses the output of `kubectl get -w -o json`, preferably with `--output-watch-events`. Without this option,
    /// kubectl does not distinguish deletions from changes: the first occurrence of an object becomes ADDED, and later
    /// ones become MODIFIED.
    pub fn from_kubectl(text: &str) -> Result<Self, RecordingError> {
        let mut seen = BTreeSet::new();
        let mut timed = Vec::new();
        for (index, value) in serde_json::Deserializer::from_str(text)
            .into_iter::<Value>()
            .enumerate()
        {
            let number = index + 1;
            let value = value.map_err(|err| RecordingError(format!("event {number}: {err}")))?;
            let (kind, object) = match value["type"].as_str() {
                Some(kind) if value["object"].is_object() => {
                    let known = WatchEventKind::parse(kind)
                        .ok_or_else(|| RecordingError(format!("event {number}: {kind:?} is not a watch event type")))?;
                    (known, value["object"].clone())
                }
                _ if value["kind"].is_string() => {
                    let metadata = &value["metadata"];
                    let id = (
                        value["kind"].to_string(),
                        metadata["namespace"].to_string(),
                        metadata["name"].to_string(),
                    );
                    let kind = match seen.insert(id) {
                        true => WatchEventKind::Added,
                        false => WatchEventKind::Modified,
                    };
                    (kind, value)
                }
                _ => {
                    return Err(RecordingError(format!(
                        "event {number} is neither a watch event nor an object"
                    )));
                }
            };
            timed.push((changed_at(&object), kind, object));
        }
        Ok(Self::timed(timed))
    }

    /// Parses an audit log of an API server with one event per line and the level `RequestResponse`. The recording
    /// contains the successful creates, updates, patches and deletes of objects and of their `status`. Deletes of
    /// collections and requests for other subresources are omitted.
    pub fn from_audit_log(text: &str) -> Result<Self, RecordingError> {
        let mut timed = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let event: Value =
                serde_json::from_str(line).map_err(|err| RecordingError(format!("line {}: {err}", index + 1)))?;
            let is_done = event["stage"] == "ResponseComplete"
                && event["responseStatus"]["code"]
                    .as_u64()
                    .is_some_and(|code| (200..300).contains(&code));
            let subresource = event["objectRef"]["subresource"].as_str().unwrap_or_default();
            if !is_done || !matches!(subresource, "" | "status") {
                continue;
            }
            let answer = &event["responseObject"];
            let is_object = answer["metadata"]["uid"].is_string();
            let (kind, object) = match event["verb"].as_str() {
                Some("create") if is_object => (WatchEventKind::Added, answer.clone()),
                // The update that removes the last finalizer of a terminating object deletes the object.
                Some("update" | "patch") if is_object && is_terminating(answer) && !remains(answer) => {
                    (WatchEventKind::Deleted, answer.clone())
                }
                Some("update" | "patch") if is_object => (WatchEventKind::Modified, answer.clone()),
                Some("delete") if is_object && remains(answer) => (WatchEventKind::Modified, answer.clone()),
                Some("delete") => (WatchEventKind::Deleted, referred(&event["objectRef"])),
                _ => continue,
            };
            timed.push((event["stageTimestamp"].as_str().map(str::to_owned), kind, object));
        }
        Ok(Self::timed(timed))
    }

    /// Collects the changes that watchers of a cluster received, once each, for a replay in another cluster. Bookmarks,
    /// errors and injected events are omitted.
    pub fn from_journal(journal: &Journal) -> Self {
        let (mut seen, mut events) = (BTreeSet::new(), Vec::new());
        let mut first = None;
        for event in journal.events() {
            let Some(kind) = WatchEventKind::parse(event.kind) else {
                continue;
            };
            if event.revision == 0 || event.name.is_empty() || !seen.insert(event.revision) {
                continue;
            }
            let line: Value = serde_json::from_slice(&event.line).unwrap_or_default();
            let at = event.at - *first.get_or_insert(event.at);
            let object = line["object"].clone();
            events.push(RecordedChange { at, kind, object });
        }
        Self { events }
    }

    /// Builds the recording from events with optional times.
    fn timed(events: Vec<(Option<String>, WatchEventKind, Value)>) -> Self {
        let seconds = |time: &str| time.parse::<jiff::Timestamp>().ok();
        let mut first = None;
        let mut last = Duration::ZERO;
        let events = events.into_iter().map(|(time, kind, object)| {
            if let Some(time) = time.as_deref().and_then(seconds) {
                let since = time.duration_since(*first.get_or_insert(time));
                // Keep the order of the events even if their times contradict it, because the clocks of writers differ.
                last = last.max(Duration::try_from(since).unwrap_or_default());
            }
            RecordedChange { at: last, kind, object }
        });
        Self {
            events: events.collect(),
        }
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns `true` if the recording is empty.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the events in order.
    pub fn events(&self) -> &[RecordedChange] {
        &self.events
    }
}

/// Returns the time of an object's last change: the newest time of its deletion, its creation and its managed fields.
fn changed_at(object: &Value) -> Option<String> {
    let metadata = &object["metadata"];
    let owners = metadata["managedFields"].as_array();
    let times = owners.into_iter().flatten().map(|it| &it["time"]);
    times
        .chain([&metadata["creationTimestamp"], &metadata["deletionTimestamp"]])
        .filter_map(Value::as_str)
        .max()
        .map(str::to_owned)
}

fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Returns `true` if the deletion of the object waits for finalizers or for the end of a grace period.
fn remains(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let has_finalizers = metadata["finalizers"].as_array().is_some_and(|it| !it.is_empty());
    has_finalizers || metadata["deletionGracePeriodSeconds"].as_u64().is_some_and(|it| it > 0)
}

/// Builds the object that an audit event refers to but does not contain. Its kind is looked up during the replay.
fn referred(reference: &Value) -> Value {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let api_version = match text("apiGroup") {
        "" => text("apiVersion").to_owned(),
        group => format!("{group}/{}", text("apiVersion")),
    };
    json!({
        "apiVersion": api_version, "resource": text("resource"),
        "metadata": {"namespace": text("namespace"), "name": text("name")},
    })
}

impl TestCluster {
    /// Applies the recorded changes to the state, event by event, without validation. Controllers receive them through
    /// their watches. Bookmarks and errors are skipped.
    ///
    /// # Panics
    ///
    /// If the kind of an added or modified object is not served. Define custom resources first.
    #[track_caller]
    pub fn replay(&self, recording: &Recording, pace: Pace) -> impl Future<Output = ()> {
        let place = Location::caller();
        at_the_test(async move {
            if self.skips("replay") {
                return Ok(());
            }
            let began = tokio::time::Instant::now();
            for (index, event) in recording.events.iter().enumerate() {
                self.pass(place, began + due(event, index, pace)).await?;
                if matches!(event.kind, WatchEventKind::Bookmark | WatchEventKind::Error) {
                    continue;
                }
                let object = self.with_kind(&event.object);
                match self.server.apply_event(event.kind, object) {
                    Err(err) if event.kind != WatchEventKind::Deleted => {
                        let what = format!("event {} of the recording: {err}", index + 1);
                        return Err(Failed::at(place, &what));
                    }
                    // The object may already be deleted.
                    Ok(()) | Err(_) => {}
                }
            }
            Ok(())
        })
    }

    /// Sends the events of a recording to these watches, one by one. The state does not change. Each event contains the
    /// cluster's newest resourceVersion, from which clients can resume.
    #[track_caller]
    pub fn replay_to(&self, watches: &Watches, recording: &Recording, pace: Pace) -> impl Future<Output = ()> {
        let place = Location::caller();
        at_the_test(async move {
            let began = tokio::time::Instant::now();
            for (index, event) in recording.events.iter().enumerate() {
                self.pass(place, began + due(event, index, pace)).await?;
                let mut object = self.with_kind(&event.object);
                // The recorded version might be newer than the versions of this cluster, or compacted.
                object["metadata"]["resourceVersion"] = self.server.resource_version().to_string().into();
                watches
                    .handles()
                    .iter()
                    .for_each(|it| it.send(event.kind, object.clone()));
            }
            Ok(())
        })
    }

    /// Adds `kind` to an object if the recording only contains its resource.
    fn with_kind(&self, object: &Value) -> Value {
        let mut object = object.clone();
        let (version, resource) = (object["apiVersion"].as_str(), object["resource"].as_str());
        if let (Some(version), Some(resource)) = (version, resource)
            && object["kind"].is_null()
        {
            let kind = self.server.kind_of(version, resource).unwrap_or_default();
            object["kind"] = kind.into();
            object.as_object_mut().map(|it| it.remove("resource"));
        }
        object
    }
}

fn due(event: &RecordedChange, index: usize, pace: Pace) -> Duration {
    match pace {
        Pace::Original => event.at,
        Pace::AtOnce => Duration::ZERO,
        Pace::Every(time) => time * u32::try_from(index).unwrap_or(u32::MAX),
    }
}
