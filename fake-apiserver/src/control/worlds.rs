//! Saves, restores, compares and changes states of the server.

use axum::body::Bytes;
use axum::extract::State;
use http::{HeaderMap, Uri};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, Answered, Order, Refusal, accepts, number};
use super::controlled::Controlled;
use super::watches::{EventOrder, kind};
use crate::snapshot::KeptSnapshot;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Restore {
    snapshot: u64,
}

pub(super) async fn snapshot(State(it): State<Controlled>) -> Answer {
    let registry = &it.server.endpoints.registry;
    let kept = KeptSnapshot {
        state: it.server.snapshot(),
        at: registry.reader.entropy.elapsed(),
        revision: it.server.resource_version(),
        objects: registry.reader.store.counts().values().sum(),
    };
    Answer::Json(json!({"snapshot": it.kept.keep(kept)}))
}

pub(super) async fn list(State(it): State<Controlled>) -> Answer {
    let snapshots = it.kept.all().into_iter().map(|(number, it)| {
        json!({
            "snapshot": number, "atMs": it.at.as_millis() as u64, "resourceVersion": it.revision,
            "objects": it.objects,
        })
    });
    let snapshots: Vec<_> = snapshots.collect();
    let now = it.server.endpoints.registry.reader.entropy.elapsed().as_millis() as u64;
    Answer::Json(json!({"atMs": now, "resourceVersion": it.server.resource_version(), "snapshots": snapshots}))
}

pub(super) async fn restore(State(it): State<Controlled>, Order(order): Order<Restore>) -> Answered {
    it.server.restore(&it.kept(order.snapshot)?);
    Ok(Answer::Json(json!({"resourceVersion": it.server.resource_version()})))
}

pub(super) async fn diff(State(it): State<Controlled>, headers: HeaderMap, uri: Uri) -> Answered {
    let from = number(&uri, "from")?.ok_or_else(|| Refusal::bad("the parameter from=N is missing"))?;
    let before = it.kept(from)?;
    let after = match number(&uri, "to")? {
        Some(to) => it.kept(to)?,
        None => it.server.snapshot(),
    };
    if !accepts(&headers, "application/json") {
        return Ok(Answer::Text(it.server.diff(&before, &after).to_string()));
    }
    let changes = it.server.changes(&before, &after);
    let names = |objects: &[Value]| objects.iter().map(identity).collect::<Vec<_>>();
    let changed = changes.changed.iter();
    let changed: Vec<_> = changed
        .map(|(object, fields)| json!({"object": identity(object), "fields": fields}))
        .collect();
    Ok(Answer::Json(
        json!({"added": names(&changes.added), "removed": names(&changes.removed), "changed": changed}),
    ))
}

/// Returns the object's kind, namespace, name and uid.
fn identity(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    json!({
        "apiVersion": text(&object["apiVersion"]), "kind": text(&object["kind"]),
        "namespace": text(&metadata["namespace"]), "name": text(&metadata["name"]), "uid": text(&metadata["uid"]),
    })
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

pub(super) async fn apply_event(State(it): State<Controlled>, Order(event): Order<EventOrder>) -> Answered {
    let kind = kind(&event)?;
    it.server.apply_event(kind, event.object).map_err(Refusal::bad)?;
    Ok(Answer::Json(json!({"resourceVersion": it.server.resource_version()})))
}

pub(super) async fn compact(State(it): State<Controlled>) -> Answer {
    it.server.compact();
    Answer::Json(json!({"resourceVersion": it.server.resource_version()}))
}
