//! Keeps states, puts them back, compares and changes them; shows the journal.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use axum::body::Bytes;
use axum::extract::State;
use http::Uri;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Controlled;
use super::answer::{Answer, Answered, Order, Refusal, number};
use super::faults::{Event, kind};
use crate::endpoints::journal::Entry;
use crate::server::Snapshot;
use crate::workers::{ScriptOrder, Worker};

/// Number of states that are kept; the oldest are dropped.
const SNAPSHOTS: usize = 64;

/// Number of entries of the journal in one answer; `since` asks for the rest.
const ENTRIES: usize = 1_000;

/// The states that the control API keeps.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// Guards the states by their numbers, and the last number.
    snapshots: Mutex<(u64, BTreeMap<u64, Snapshot>)>,
}

impl Control {
    /// Keeps a state, and returns its number.
    fn keep(&self, snapshot: Snapshot) -> u64 {
        let mut snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        snapshots.0 += 1;
        let number = snapshots.0;
        snapshots.1.insert(number, snapshot);
        while snapshots.1.len() > SNAPSHOTS {
            snapshots.1.pop_first();
        }
        number
    }

    fn kept(&self, number: u64) -> Result<Snapshot, Refusal> {
        let snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = snapshots.1.get(&number).cloned();
        snapshot.ok_or_else(|| Refusal::absent(&format!("snapshot {number}")))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Restore {
    snapshot: u64,
}

pub(super) async fn snapshot(State(it): State<Controlled>) -> Answer {
    Answer::Json(json!({"snapshot": it.control.keep(it.server.snapshot())}))
}

pub(super) async fn restore(State(it): State<Controlled>, Order(order): Order<Restore>) -> Answered {
    it.server.restore(&it.control.kept(order.snapshot)?);
    Ok(Answer::Json(json!({"resourceVersion": it.server.resource_version()})))
}

pub(super) async fn diff(State(it): State<Controlled>, uri: Uri) -> Answered {
    let from = number(&uri, "from")?.ok_or_else(|| Refusal::bad("from=N is missing"))?;
    let diff = it.server.diff(&it.control.kept(from)?, &it.server.snapshot());
    Ok(Answer::Text(diff.to_string()))
}

pub(super) async fn world(State(it): State<Controlled>) -> Answer {
    Answer::Text(it.server.to_yaml(&it.server.snapshot()))
}

pub(super) async fn load_objects(State(it): State<Controlled>, body: Bytes) -> Answered {
    let text = std::str::from_utf8(&body).map_err(Refusal::bad)?;
    let manifests = crate::load::from_text(text).map_err(Refusal::bad)?;
    let loaded = it.server.load(manifests.into_iter().map(|it| it.object));
    Ok(Answer::Json(json!({"loaded": loaded.map_err(Refusal::bad)?})))
}

pub(super) async fn apply_event(State(it): State<Controlled>, Order(event): Order<Event>) -> Answered {
    let kind = kind(&event)?;
    it.server.apply_event(kind, event.object).map_err(Refusal::bad)?;
    Ok(Answer::Json(json!({"resourceVersion": it.server.resource_version()})))
}

pub(super) async fn compact(State(it): State<Controlled>) -> Answer {
    it.server.compact();
    Answer::Json(json!({"resourceVersion": it.server.resource_version()}))
}

pub(super) async fn script_pods(State(it): State<Controlled>, Order(order): Order<ScriptOrder>) -> Answered {
    if !it.server.runs(Worker::Kubelet) {
        return Err(Refusal::bad("Pods run with --workers kubelet, workloads or all"));
    }
    let (pods, script) = order.read().map_err(Refusal::bad)?;
    it.server.kubelet().script(pods, script);
    Ok(Answer::Json(json!({})))
}

pub(super) async fn forget_scripts(State(it): State<Controlled>) -> Answer {
    it.server.kubelet().clear();
    Answer::Json(json!({}))
}

pub(super) async fn journal(State(it): State<Controlled>, uri: Uri) -> Answered {
    let journal = it.server.journal();
    let mut entries = Vec::new();
    let total = journal.visit(number(&uri, "since")?.unwrap_or(0), |it| entries.push(it.clone()));
    let first = total - entries.len() as u64;
    let entries: Vec<_> = entries.iter().take(ENTRIES).map(entry).collect();
    Ok(Answer::Json(
        json!({"next": first + entries.len() as u64, "total": total, "entries": entries}),
    ))
}

fn entry(entry: &Entry) -> Value {
    match entry {
        Entry::Request(it) => json!({
            "request": {
                "atMs": it.started.as_millis() as u64, "client": *it.client, "method": it.method.as_str(),
                "path": it.path, "code": it.code, "faults": it.faults,
                "body": String::from_utf8_lossy(&it.request_body), "isCut": it.is_cut,
            }
        }),
        Entry::Event(it) => json!({
            "event": {
                "atMs": it.at.as_millis() as u64, "client": *it.client, "watch": it.watch, "type": it.kind,
                "resource": it.resource, "namespace": it.namespace, "name": it.name, "resourceVersion": it.revision,
            }
        }),
    }
}

pub(super) async fn forget_journal(State(it): State<Controlled>) -> Answer {
    it.server.journal().clear();
    Answer::Json(json!({}))
}
