//! Shows and controls the open watches.

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, Answered, Order, Refusal};
use super::controlled::Controlled;
use crate::faults::{Failure, RequestFilter, WatchEventKind, WatchHandle};
use crate::server::ApiServer;

/// An action on watches.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Action {
    Hold,
    Release(u64),
    Resume,
    Silence,
    End,
    Expire,
    Fail(Failure),
    Cut,
    CutInside(usize),
    Duplicate(u64),
    Bookmark,
    WithholdBookmarks,
    WithholdInitialEnd,
    SendInitialEnd,
    Send(EventOrder),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventOrder {
    pub(super) r#type: String,
    pub(super) object: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OnWatches {
    #[serde(default)]
    on: RequestFilter,
    /// Selects the watch with this number.
    watch: Option<u64>,
    r#do: Action,
}

pub(super) async fn list(State(it): State<Controlled>) -> Answer {
    let watches = it.server.watches();
    Answer::Json(watches.iter().map(|watch| shown(watch, &it.server)).collect())
}

fn shown(handle: &WatchHandle, server: &ApiServer) -> Value {
    let info = handle.info();
    let held = handle.held();
    let held = held
        .iter()
        .map(|it| json!({"type": it.kind, "namespace": it.namespace, "name": it.name, "resourceVersion": it.revision}));
    json!({
        "id": handle.id(), "client": handle.client(), "group": info.group, "resource": info.resource,
        "namespace": info.namespace, "delivered": handle.delivered(), "lastResourceVersion": handle.last_revision(),
        "behind": behind(handle, server), "isSilent": handle.is_silent(), "isHeld": handle.is_held(),
        "held": held.collect::<Vec<_>>(),
    })
}

/// Returns the number of undelivered events. For a held watch, these are the events that it has read ahead; otherwise
/// the changes of all objects in its scope, without applying its selectors.
fn behind(handle: &WatchHandle, server: &ApiServer) -> usize {
    if handle.is_held() {
        return handle.held().len();
    }
    let (info, registry) = (handle.info(), &server.endpoints.registry);
    let row = registry
        .reader
        .scheme()
        .lookup(&info.group, &info.version, &info.resource);
    match (row, handle.position()) {
        (None, _) | (_, 0) => 0,
        (Some(row), position) => registry.reader.store.count_after(&row.storage, position, |key| {
            (info.namespace.is_empty() || key.namespace() == info.namespace)
                && (info.name.is_empty() || key.name() == info.name)
        }),
    }
}

pub(super) async fn act(State(it): State<Controlled>, Order(order): Order<OnWatches>) -> Answered {
    let event = match &order.r#do {
        Action::Send(event) => Some(kind(event)?),
        _ => None,
    };
    if let Action::Fail(failure) = &order.r#do {
        failure.check().map_err(Refusal::bad)?;
    }
    let mut watches = it.server.watches();
    watches.retain(|it| order.watch.is_none_or(|id| it.id() == id) && order.on.matches(it.info(), it.client(), None));
    for watch in &watches {
        match &order.r#do {
            Action::Hold => watch.hold(),
            Action::Release(events) => watch.release(*events),
            Action::Resume => watch.resume(),
            Action::Silence => watch.silence(),
            Action::End => watch.end(),
            Action::Expire => watch.expire(),
            Action::Fail(failure) => watch.fail(failure.status()),
            Action::Cut => watch.cut(),
            Action::CutInside(bytes) => watch.cut_inside(*bytes),
            Action::Duplicate(events) => watch.duplicate(*events),
            Action::Bookmark => watch.bookmark(),
            Action::WithholdBookmarks => watch.withhold_bookmarks(),
            Action::WithholdInitialEnd => watch.withhold_initial_end(),
            Action::SendInitialEnd => watch.send_initial_end(),
            Action::Send(it) => {
                if let Some(kind) = event {
                    watch.send(kind, it.object.clone());
                }
            }
        }
    }
    Ok(Answer::Json(json!({"watches": watches.len()})))
}

pub(super) fn kind(event: &EventOrder) -> Result<WatchEventKind, Refusal> {
    let kind = WatchEventKind::parse(&event.r#type);
    kind.ok_or_else(|| Refusal::bad(format!("{:?} is not a watch event type", event.r#type)))
}
