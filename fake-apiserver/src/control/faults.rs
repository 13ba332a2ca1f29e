//! Injects faults, and acts on watches, replicas, clocks and connections.

use std::time::Duration;

use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Controlled;
use super::answer::{Answer, Answered, Order, Refusal};
use crate::faults::{Failure, FaultRule, RequestFilter, RestartLog, WatchEventKind, WatchHandle};

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
    Send(Event),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Event {
    pub(super) r#type: String,
    pub(super) object: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OnWatches {
    #[serde(default)]
    on: RequestFilter,
    r#do: Action,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OnReplica {
    client: String,
    sees: Sees,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct OnClock {
    client: String,
    ahead_ms: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Sees {
    Everything,
    NothingMore,
    AsFarAs(u64),
    Behind(u64),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct Restart {
    log: String,
    down_ms: u64,
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            log: "kept".to_owned(),
            down_ms: 0,
        }
    }
}

pub(super) async fn inject(State(it): State<Controlled>, Order(rule): Order<FaultRule>) -> Answered {
    let description = rule.to_string();
    let guard = it.server.inject_rule(rule).map_err(Refusal::bad)?;
    let id = guard.id();
    guard.forget();
    Ok(Answer::Json(json!({"id": id, "fault": description})))
}

pub(super) async fn list(State(it): State<Controlled>) -> Answer {
    let rules = it.server.endpoints.faults.rules.list();
    let shown = rules
        .iter()
        .map(|it| json!({"id": it.id, "fault": it.description, "hits": it.hits}));
    Answer::Json(shown.collect())
}

pub(super) async fn end_all(State(it): State<Controlled>) -> Answer {
    let rules = &it.server.endpoints.faults.rules;
    let in_force = rules.list();
    for rule in &in_force {
        rules.remove(rule.id);
    }
    Answer::Json(json!({"ended": in_force.len()}))
}

pub(super) async fn end(State(it): State<Controlled>, Path(id): Path<String>) -> Answered {
    let rules = &it.server.endpoints.faults.rules;
    match id.parse().is_ok_and(|id| rules.remove(id)) {
        true => Ok(Answer::Json(json!({"ended": 1}))),
        false => Err(Refusal::absent(&format!("fault {id}"))),
    }
}

pub(super) async fn watches(State(it): State<Controlled>) -> Answer {
    Answer::Json(it.server.watches().iter().map(shown).collect())
}

fn shown(handle: &WatchHandle) -> Value {
    let info = handle.info();
    let held = handle.held();
    let held = held
        .iter()
        .map(|it| json!({"type": it.kind, "namespace": it.namespace, "name": it.name, "resourceVersion": it.revision}));
    json!({
        "id": handle.id(), "client": handle.client(), "group": info.group, "resource": info.resource,
        "namespace": info.namespace, "delivered": handle.delivered(), "lastResourceVersion": handle.last_revision(),
        "isHeld": handle.is_held(), "held": held.collect::<Vec<_>>(),
    })
}

pub(super) async fn act_on_watches(State(it): State<Controlled>, Order(order): Order<OnWatches>) -> Answered {
    let event = match &order.r#do {
        Action::Send(event) => Some(kind(event)?),
        _ => None,
    };
    if let Action::Fail(failure) = &order.r#do {
        failure.check().map_err(Refusal::bad)?;
    }
    let mut watches = it.server.watches();
    watches.retain(|it| order.on.matches(it.info(), it.client(), None));
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

pub(super) fn kind(event: &Event) -> Result<WatchEventKind, Refusal> {
    let kind = WatchEventKind::parse(&event.r#type);
    kind.ok_or_else(|| Refusal::bad(format!("{:?} is not a type of watch event", event.r#type)))
}

pub(super) async fn set_replica(State(it): State<Controlled>, Order(order): Order<OnReplica>) -> Answer {
    let replica = it.server.replica(&order.client);
    match order.sees {
        Sees::Everything => replica.catch_up(),
        Sees::NothingMore => replica.freeze(),
        Sees::AsFarAs(revision) => replica.freeze_at(revision),
        Sees::Behind(changes) => replica.lag(changes),
    }
    Answer::Json(json!({"sees": replica.sees(), "newest": it.server.resource_version()}))
}

pub(super) async fn skew_clock(State(it): State<Controlled>, Order(order): Order<OnClock>) -> Answer {
    it.server.skew_clock(&order.client, order.ahead_ms);
    Answer::Json(json!({}))
}

pub(super) async fn restart(State(it): State<Controlled>, Order(order): Order<Restart>) -> Answered {
    let log = match order.log.as_str() {
        "kept" => RestartLog::Kept,
        "lost" => RestartLog::Lost,
        other => return Err(Refusal::bad(format!("log {other:?} is neither \"kept\" nor \"lost\""))),
    };
    it.server.restart(log, Duration::from_millis(order.down_ms), &[]);
    Ok(Answer::Json(json!({})))
}
