//! Injects faults, and controls replicas, clocks and connections.

use std::time::Duration;

use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::json;

use super::answer::{Answer, Answered, Order, Refusal};
use super::controlled::Controlled;
use crate::faults::{FaultRule, RestartLog};

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
        .map(|it| json!({"id": it.id, "fault": it.description, "hits": it.hits, "isSpent": it.is_spent}));
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
