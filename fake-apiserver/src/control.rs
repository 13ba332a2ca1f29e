//! The control API: what a test does to a server in another process, over HTTP. It is off unless it is asked for.
//!
//! | request | what it does |
//! |---|---|
//! | `GET /_fake` | this list |
//! | `GET /_fake/openapi.json` | the same as an OpenAPI document |
//! | `POST /_fake/faults` | injects a [`FaultRule`]; answers its number |
//! | `GET /_fake/faults` | the faults in force, with how many requests each has struck |
//! | `DELETE /_fake/faults[/N]` | ends all of them, or one |
//! | `GET /_fake/watches` | the watches under way, and what waits behind those that are held |
//! | `POST /_fake/watches` | does something to those that are meant: `{"on": {"resource": "pods"}, "do": "hold"}` |
//! | `GET /_fake/journal[?since=N]` | requests and watch events, in order; `isCut`: the body was dropped, being old |
//! | `DELETE /_fake/journal` | forgets them |
//! | `POST /_fake/replicas` | how far a client sees: `{"client": "operator", "sees": {"behind": 3}}` |
//! | `POST /_fake/clocks` | lets a client's clock go wrong: `{"client": "operator", "aheadMs": 5000}` |
//! | `POST /_fake/pods` | says what becomes of Pods, a [`ScriptOrder`]; `DELETE` forgets all of it |
//! | `POST /_fake/compact` | forgets history, as etcd's compaction does |
//! | `POST /_fake/restart` | ends all connections: `{"log": "lost", "downMs": 2000}` |
//! | `POST /_fake/snapshot` | keeps the state; answers its number |
//! | `POST /_fake/restore` | puts a state back: `{"snapshot": 1}` |
//! | `GET /_fake/diff?from=N` | what has changed since a state was kept, as text |
//! | `GET /_fake/world` | all objects, as YAML that can be loaded again |
//! | `POST /_fake/objects` | stores objects as they are, from YAML or JSON |
//! | `POST /_fake/events` | changes the state as a watch event says: `{"type": "DELETED", "object": {…}}` |

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{Response, StatusCode, Uri};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::endpoints::journal::Entry;
use crate::faults::{Failure, FaultRule, RequestFilter, RestartLog, WatchEventKind, WatchHandle};
use crate::server::{ApiServer, Snapshot};
use crate::workers::{ScriptOrder, Worker};

/// Path prefix of the control API.
const PREFIX: &str = "/_fake";

/// Returns `true` if a path belongs to the control API.
pub(crate) fn is_for(path: &str) -> bool {
    path.strip_prefix(PREFIX)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The largest body: a world may be sent.
pub(crate) const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// States that are kept at the most; the oldest go.
const SNAPSHOTS: usize = 64;

/// Entries of the journal in one answer; the rest is asked for with `since`.
const ENTRIES: usize = 1_000;

/// State of the control API.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// Guards the states that are kept, by their numbers, and the last number.
    snapshots: Mutex<(u64, BTreeMap<u64, Snapshot>)>,
}

/// Action on watches.
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
struct Event {
    r#type: String,
    object: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnWatches {
    #[serde(default)]
    on: RequestFilter,
    r#do: Action,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnReplica {
    client: String,
    sees: Sees,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct OnClock {
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
struct Restart {
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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Restore {
    snapshot: u64,
}

/// Answer: a document, a text, or an error.
enum Answer {
    Json(Value),
    Text(String),
}

/// Reason for refusing an action.
struct Refusal(StatusCode, String);

impl Refusal {
    fn bad(reason: impl ToString) -> Self {
        Self(StatusCode::BAD_REQUEST, reason.to_string())
    }

    fn absent(what: &str) -> Self {
        Self(StatusCode::NOT_FOUND, format!("there is no {what}"))
    }
}

type Answered = Result<Answer, Refusal>;

/// Answers a request to the control API.
pub(crate) fn answer(server: &ApiServer, control: &Control, parts: &Parts, body: &Bytes) -> Response<Bytes> {
    if let Err(Refusal(code, reason)) = check_type(parts, body) {
        return refuse(code.as_u16(), &reason);
    }
    let (method, uri) = (&parts.method, &parts.uri);
    let path = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let words: Vec<_> = path.split('/').filter(|it| !it.is_empty()).collect();
    let answered = match (method.as_str(), words.as_slice()) {
        ("GET", []) => Ok(Answer::Text(HELP.to_owned())),
        ("GET", ["openapi.json"]) => serde_json::from_str(OPEN_API).map(Answer::Json).map_err(Refusal::bad),
        (verb, ["faults", rest @ ..]) => faults(server, verb, rest, body),
        ("GET", ["watches"]) => Ok(Answer::Json(server.watches().iter().map(watch).collect())),
        ("POST", ["watches"]) => on_watches(server, body),
        ("GET", ["journal"]) => journal(server, uri),
        ("DELETE", ["journal"]) => {
            server.journal().clear();
            Ok(Answer::Json(json!({})))
        }
        ("POST", ["replicas"]) => on_replica(server, body),
        ("POST", ["clocks"]) => read(body).map(|order: OnClock| {
            server.skew_clock(&order.client, order.ahead_ms);
            Answer::Json(json!({}))
        }),
        ("POST", ["pods"]) => on_pods(server, body),
        ("DELETE", ["pods"]) => {
            server.kubelet().clear();
            Ok(Answer::Json(json!({})))
        }
        ("POST", ["compact"]) => {
            server.compact();
            Ok(Answer::Json(json!({"resourceVersion": server.resource_version()})))
        }
        ("POST", ["restart"]) => restart(server, body),
        (_, ["snapshot" | "restore" | "diff" | "world" | "objects" | "events"]) => {
            control.worlds(server, method.as_str(), words[0], uri, body)
        }
        _ => Err(Refusal::absent(&format!("{method} {}", uri.path()))),
    };
    match answered {
        Ok(Answer::Json(value)) => respond(200, "application/json", format!("{value}\n")),
        Ok(Answer::Text(text)) => respond(200, "text/plain; charset=utf-8", text),
        Err(Refusal(code, reason)) => refuse(code.as_u16(), &reason),
    }
}

/// The answer of what is not done: `{"error": reason}`.
pub(crate) fn refuse(code: u16, reason: &str) -> Response<Bytes> {
    respond(code, "application/json", format!("{}\n", json!({"error": reason})))
}

fn respond(code: u16, kind: &'static str, text: String) -> Response<Bytes> {
    let mut response = Response::new(text.into());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Bodies are JSON, objects YAML too, and say so: what a form of a page sends is neither.
fn check_type(parts: &Parts, body: &Bytes) -> Result<(), Refusal> {
    let types: &[&str] = match parts.uri.path().strip_prefix(PREFIX) {
        Some("/objects") => &["application/json", "application/yaml"],
        _ => &["application/json"],
    };
    let sent = parts.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let sent = sent.and_then(|it| it.split(';').next()).unwrap_or_default().trim();
    match body.is_empty() || types.iter().any(|it| it.eq_ignore_ascii_case(sent)) {
        true => Ok(()),
        false => Err(Refusal(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("the body must be {} and say so in Content-Type", types.join(" or ")),
        )),
    }
}

/// The same list for programs.
const OPEN_API: &str = include_str!("control/openapi.json");

const HELP: &str = "\
GET    /_fake/openapi.json   this list for programs
POST   /_fake/faults         inject a fault: {\"effect\": \"conflict\", \"on\": {\"verbs\": [\"update\"]}, \"times\": 1}
GET    /_fake/faults         faults in force
DELETE /_fake/faults[/N]     end all faults, or one
GET    /_fake/watches        watches under way
POST   /_fake/watches        act on watches: {\"on\": {\"resource\": \"pods\"}, \"do\": \"hold\"}
GET    /_fake/journal        requests and events; ?since=N
DELETE /_fake/journal        forget them
POST   /_fake/replicas       {\"client\": \"operator\", \"sees\": {\"behind\": 3}}
POST   /_fake/clocks         {\"client\": \"operator\", \"aheadMs\": 5000}
POST   /_fake/pods           {\"pods\": {\"labels\": \"app=db\"}, \"script\": {\"crashLoop\": true}}
DELETE /_fake/pods           forget what becomes of Pods
POST   /_fake/compact        forget history
POST   /_fake/restart        {\"log\": \"lost\", \"downMs\": 2000}
POST   /_fake/snapshot       keep the state
POST   /_fake/restore        {\"snapshot\": 1}
GET    /_fake/diff?from=N    what has changed since
GET    /_fake/world          all objects as YAML
POST   /_fake/objects        store objects as they are
POST   /_fake/events         {\"type\": \"DELETED\", \"object\": {...}}
";

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refusal> {
    let body: &[u8] = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(Refusal::bad)
}

/// A number in the query.
fn number(uri: &Uri, name: &str) -> Result<Option<u64>, Refusal> {
    let pairs = uri.query().unwrap_or_default().split('&');
    let value = pairs
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name);
    value
        .map(|(_, value)| {
            value
                .parse()
                .map_err(|_| Refusal::bad(format!("{name}={value} is no number")))
        })
        .transpose()
}

fn faults(server: &ApiServer, verb: &str, rest: &[&str], body: &Bytes) -> Answered {
    let rules = &server.endpoints.faults.rules;
    match (verb, rest) {
        ("POST", []) => {
            let rule: FaultRule = read(body)?;
            let description = rule.to_string();
            let guard = server.inject_rule(rule).map_err(Refusal::bad)?;
            let id = guard.id();
            guard.forget();
            Ok(Answer::Json(json!({"id": id, "fault": description})))
        }
        ("GET", []) => {
            let rules = rules.list();
            let shown = rules
                .iter()
                .map(|it| json!({"id": it.id, "fault": it.description, "hits": it.hits}));
            Ok(Answer::Json(shown.collect()))
        }
        ("DELETE", []) => {
            let rules_now = rules.list();
            for rule in &rules_now {
                rules.remove(rule.id);
            }
            Ok(Answer::Json(json!({"ended": rules_now.len()})))
        }
        ("DELETE", [id]) => match id.parse().is_ok_and(|id| rules.remove(id)) {
            true => Ok(Answer::Json(json!({"ended": 1}))),
            false => Err(Refusal::absent(&format!("fault {id}"))),
        },
        _ => Err(Refusal(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("{verb} is not for faults"),
        )),
    }
}

fn watch(handle: &WatchHandle) -> Value {
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

fn on_watches(server: &ApiServer, body: &Bytes) -> Answered {
    let order: OnWatches = read(body)?;
    let event = match &order.r#do {
        Action::Send(event) => Some(kind(event)?),
        _ => None,
    };
    if let Action::Fail(failure) = &order.r#do {
        failure.check().map_err(Refusal::bad)?;
    }
    let mut watches = server.watches();
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

fn kind(event: &Event) -> Result<WatchEventKind, Refusal> {
    let kind = WatchEventKind::parse(&event.r#type);
    kind.ok_or_else(|| Refusal::bad(format!("{:?} is not a type of watch event", event.r#type)))
}

fn journal(server: &ApiServer, uri: &Uri) -> Answered {
    let journal = server.journal();
    let mut entries = Vec::new();
    let total = journal.visit(number(uri, "since")?.unwrap_or(0), |it| entries.push(it.clone()));
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

fn on_replica(server: &ApiServer, body: &Bytes) -> Answered {
    let order: OnReplica = read(body)?;
    let replica = server.replica(&order.client);
    match order.sees {
        Sees::Everything => replica.catch_up(),
        Sees::NothingMore => replica.freeze(),
        Sees::AsFarAs(revision) => replica.freeze_at(revision),
        Sees::Behind(changes) => replica.lag(changes),
    }
    Ok(Answer::Json(
        json!({"sees": replica.sees(), "newest": server.resource_version()}),
    ))
}

fn on_pods(server: &ApiServer, body: &Bytes) -> Answered {
    if !server.runs(Worker::Kubelet) {
        return Err(Refusal::bad("Pods run with --workers kubelet, workloads or all"));
    }
    let order: ScriptOrder = read(body)?;
    let (pods, script) = order.read().map_err(Refusal::bad)?;
    server.kubelet().script(pods, script);
    Ok(Answer::Json(json!({})))
}

fn restart(server: &ApiServer, body: &Bytes) -> Answered {
    let order: Restart = read(body)?;
    let log = match order.log.as_str() {
        "kept" => RestartLog::Kept,
        "lost" => RestartLog::Lost,
        other => return Err(Refusal::bad(format!("log {other:?} is neither \"kept\" nor \"lost\""))),
    };
    server.restart(log, Duration::from_millis(order.down_ms), &[]);
    Ok(Answer::Json(json!({})))
}

impl Control {
    fn kept(&self, number: u64) -> Result<Snapshot, Refusal> {
        let snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = snapshots.1.get(&number).cloned();
        snapshot.ok_or_else(|| Refusal::absent(&format!("snapshot {number}")))
    }

    /// States: kept, put back, compared, written out and changed.
    fn worlds(&self, server: &ApiServer, method: &str, word: &str, uri: &Uri, body: &Bytes) -> Answered {
        match (method, word) {
            ("POST", "snapshot") => {
                let mut snapshots = self.snapshots.lock().unwrap_or_else(PoisonError::into_inner);
                snapshots.0 += 1;
                let number = snapshots.0;
                snapshots.1.insert(number, server.snapshot());
                while snapshots.1.len() > SNAPSHOTS {
                    snapshots.1.pop_first();
                }
                Ok(Answer::Json(json!({"snapshot": number})))
            }
            ("POST", "restore") => {
                let order: Restore = read(body)?;
                server.restore(&self.kept(order.snapshot)?);
                Ok(Answer::Json(json!({"resourceVersion": server.resource_version()})))
            }
            ("GET", "diff") => {
                let from = number(uri, "from")?.ok_or_else(|| Refusal::bad("from=N is missing"))?;
                Ok(Answer::Text(
                    server.diff(&self.kept(from)?, &server.snapshot()).to_string(),
                ))
            }
            ("GET", "world") => Ok(Answer::Text(server.to_yaml(&server.snapshot()))),
            ("POST", "objects") => {
                let text = std::str::from_utf8(body).map_err(Refusal::bad)?;
                let manifests = crate::load::from_text(text).map_err(Refusal::bad)?;
                let loaded = server
                    .load(manifests.into_iter().map(|it| it.object))
                    .map_err(Refusal::bad)?;
                Ok(Answer::Json(json!({"loaded": loaded})))
            }
            ("POST", "events") => {
                let event: Event = read(body)?;
                server.apply_event(kind(&event)?, event.object).map_err(Refusal::bad)?;
                Ok(Answer::Json(json!({"resourceVersion": server.resource_version()})))
            }
            _ => Err(Refusal(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("{method} is not for {word}"),
            )),
        }
    }
}
