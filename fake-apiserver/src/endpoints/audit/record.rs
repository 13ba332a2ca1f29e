//! `Record`: the event of a request as it grows from stage to stage, after `WithAudit` of k8s.io/apiserver.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use jiff::Timestamp;
use serde_json::Value;

use super::Audit;
use super::event::{Event, ObjectReference, ResponseStatus, User};
use super::policy::{Extent, Level, Stage};
use crate::api::arrival::Arrival;
use crate::api::duration;
use crate::api::json::escape_html;
use crate::api::object::Object;
use crate::api::options::FieldValidation;
use crate::api::rbac::Attributes;
use crate::api::request_info::ResourcePath;
use crate::api::status::Status;
use crate::api::user::UserInfo;
use crate::endpoints::Endpoints;
use crate::endpoints::filters::Call;
use crate::endpoints::{decode, yaml};
use crate::registry::request::{Annotations, Latencies};
use crate::registry::scheme::Row;

/// The longest `User-Agent` of an event; more is cut off.
const USER_AGENT_BYTES: usize = 1024;

/// The time after which an event says how long its request took.
const SLOW: Duration = Duration::from_millis(500);

/// The event of a request.
pub(crate) struct Record {
    event: Event,
    extent: Extent,
    received: Timestamp,
    latencies: Latencies,
    sink: Arc<dyn Fn(&str) + Send + Sync>,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("event", &self.event)
            .finish_non_exhaustive()
    }
}

/// Begins the record of a request of a known user, if the policy asks for one.
pub(crate) fn begin(server: &Endpoints, call: &mut Call, path: &str, request: &Attributes<'_>) {
    if let Some(audit) = &server.audit
        && let Some(mut record) = Record::new(server, audit, call, path, request, Some(&call.user))
    {
        record.emit(Stage::RequestReceived, server.registry.reader.entropy.now());
        call.record = Some(Box::new(record));
        call.remarks.annotations = Annotations::kept();
    }
}

/// Records a request whose user is unknown, which has one stage. After `WithFailedAuthenticationAudit`.
pub(crate) fn unauthenticated(server: &Endpoints, call: &Call, path: &str, request: &Attributes<'_>, refused: &Status) {
    let Some(audit) = &server.audit else { return };
    let Some(mut record) = Record::new(server, audit, call, path, request, None) else {
        return;
    };
    let scheme = call.header(&http::header::AUTHORIZATION);
    let scheme = scheme.and_then(|it| it.trim().split(' ').next()).unwrap_or_default();
    let message = match scheme {
        "" => "Authentication failed, no credentials provided".to_owned(),
        scheme => format!("Authentication failed, attempted: {}", scheme.to_lowercase()),
    };
    record.event.response_status = Some(ResponseStatus {
        message,
        code: refused.code,
        ..ResponseStatus::default()
    });
    record.emit(Stage::ResponseStarted, server.registry.reader.entropy.now());
}

/// Adds the body of a request to its record, if it has one that can be read.
pub(crate) fn sent(call: &mut Call, row: &Row) {
    let Some(mut record) = call.record.take() else { return };
    let is_patch = call.parts.method == Method::PATCH;
    if is_patch {
        let yaml = || yaml::parse(&call.body).map(|it| it.value).ok();
        if let Some(patch) = serde_json::from_slice(&call.body).ok().or_else(yaml) {
            record.patched(patch);
        }
    } else if !call.body.is_empty()
        && let Ok(mut object) = body_of(&record, call, row)
    {
        let is_delete = call.parts.method == Method::DELETE;
        let subresource = call.info.as_ref().map_or("", |it| &it.subresource);
        let own = row.info.subresources.iter().find(|it| it.name == subresource);
        let (kind, api_version) = match own {
            _ if is_delete => ("DeleteOptions", row.api_version.to_string()),
            Some(it) if !it.group.is_empty() => (&*it.kind, format!("{}/{}", it.group, it.version)),
            Some(it) => (&*it.kind, it.version.to_string()),
            None => (&*row.info.kind, row.api_version.to_string()),
        };
        for (name, value) in [("kind", kind), ("apiVersion", &*api_version)] {
            if object.get(name).is_none() {
                object.insert(name.into(), value.into());
            }
        }
        record.sent(object);
    }
    call.record = Some(record);
}

/// The body as an object; with defaults where the event shows it, as `LogRequestObject` does.
fn body_of(record: &Record, call: &Call, row: &Row) -> Result<Object, Status> {
    let is_of_row = matches!(call.parts.method, Method::POST | Method::PUT)
        && call.info.as_ref().is_some_and(|it| it.subresource.is_empty());
    if is_of_row && record.extent.level >= Level::Request {
        return decode::object(row, call, None, FieldValidation::Ignore).map(|it| it.object);
    }
    decode::sent(row, call).map(|it| it.object)
}

impl Record {
    fn new(
        server: &Endpoints,
        audit: &Audit,
        call: &Call,
        path: &str,
        request: &Attributes<'_>,
        user: Option<&UserInfo>,
    ) -> Option<Self> {
        let extent = audit.policy.extent(user, request)?;
        let found = ResourcePath::parse(path);
        let entropy = &server.registry.reader.entropy;
        let waited = entropy.elapsed().saturating_sub(call.started);
        let received = entropy.now().saturating_sub(waited).unwrap_or(Timestamp::MIN);
        let uri = &call.parts.uri;
        let event = Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: extent.level.as_str(),
            audit_id: call.audit_id().to_owned(),
            request_uri: uri.path_and_query().map_or_else(String::new, ToString::to_string),
            verb: request.verb.to_owned(),
            user: user.map(User::from).unwrap_or_default(),
            source_ips: source_ips(call),
            user_agent: cut(call.user_agent()),
            object_ref: found.map(|it| ObjectReference {
                resource: it.resource.to_owned(),
                namespace: request.namespace.to_owned(),
                name: request.name.to_owned(),
                api_group: it.group.to_owned(),
                api_version: it.version.to_owned(),
                subresource: request.subresource.to_owned(),
                ..ObjectReference::default()
            }),
            request_received_timestamp: micro_time(received),
            ..Event::default()
        };
        Some(Self {
            event,
            extent,
            received,
            latencies: Latencies::new(),
            sink: Arc::clone(&audit.sink),
        })
    }

    /// The user the request goes on as.
    pub(crate) fn impersonated(&mut self, user: &UserInfo) {
        self.event.impersonated_user = Some(user.into());
    }

    /// The decision of authorization.
    pub(crate) fn authorized(&mut self, is_allowed: bool, reason: &str) {
        let decision = if is_allowed { "allow" } else { "forbid" };
        let annotations = &mut self.event.annotations;
        annotations.insert("authorization.k8s.io/decision".into(), decision.to_owned());
        annotations.insert("authorization.k8s.io/reason".into(), reason.to_owned());
    }

    /// The annotations that were made while the request was handled, those of bodies if the event shows them.
    pub(crate) fn annotated(&mut self, annotations: &Annotations) {
        for (key, annotation) in annotations.take() {
            if !annotation.is_of_body || self.extent.level >= Level::Request {
                self.event.annotations.entry(key.into()).or_insert(annotation.value);
            }
        }
        self.latencies = annotations.take_latencies();
    }

    /// The API that was asked is deprecated. After `MonitorRequest` of k8s.io/apiserver.
    pub(crate) fn deprecated(&mut self) {
        let annotations = &mut self.event.annotations;
        annotations.insert("k8s.io/deprecated".into(), "true".to_owned());
    }

    /// The object of the body, which also completes the reference to the object.
    pub(crate) fn sent(&mut self, mut object: Object) {
        if let Some(reference) = &mut self.event.object_ref {
            let text = |name: &str| {
                object
                    .metadata()
                    .and_then(|it| it.get(name)?.as_str())
                    .unwrap_or_default()
            };
            let fields = [
                (&mut reference.namespace, "namespace"),
                (&mut reference.name, "name"),
                (&mut reference.uid, "uid"),
                (&mut reference.resource_version, "resourceVersion"),
            ];
            for (field, name) in fields {
                if field.is_empty() {
                    text(name).clone_into(field);
                }
            }
        }
        if self.extent.level >= Level::Request {
            if self.extent.omit_managed_fields {
                object.metadata_mut().remove("managedFields");
            }
            self.event.request_object = Some(Value::Object(object.0));
        }
    }

    /// The patch of the body, as it was sent.
    pub(crate) fn patched(&mut self, patch: Value) {
        if self.extent.level >= Level::Request {
            self.event.request_object = Some(patch);
        }
    }

    /// Returns `true` if the event shows the answer.
    pub(crate) fn wants_answer(&self) -> bool {
        self.extent.level == Level::RequestResponse
    }

    /// The failure that the request is answered with.
    pub(crate) fn failed(&mut self, status: &Status) {
        self.event.response_status = Some(status.into());
        if self.wants_answer() && self.event.object_ref.is_some() {
            self.event.response_object = Some(status.to_value());
        }
    }

    /// The answer, which may be the Status of a success.
    pub(crate) fn succeeded(&mut self, answer: &[u8]) {
        if !answer.starts_with(b"{\"kind\":\"Status\"") {
            return;
        }
        let value: Value = serde_json::from_slice(answer).unwrap_or_default();
        self.event.response_status = Some(ResponseStatus {
            status: "Success",
            details: serde_json::from_value(value["details"].clone()).ok(),
            ..ResponseStatus::default()
        });
    }

    /// The answer's object.
    pub(crate) fn answered(&mut self, mut object: Value) {
        if self.extent.omit_managed_fields {
            let strip = |object: &mut Value| {
                if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("managedFields");
                }
            };
            strip(&mut object);
            object
                .get_mut("items")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
                .for_each(strip);
        }
        self.event.response_object = Some(object);
    }

    /// The code of the answer. `None`: the connection broke before there was one.
    pub(crate) fn has_code(&mut self, code: Option<u16>) {
        let status = self.event.response_status.get_or_insert_default();
        match code {
            Some(code) => status.code = code,
            None => {
                (status.status, status.code) = ("Success", 200);
                status.message = "Connection closed early".to_owned();
            }
        }
    }

    /// The answer begins, of a request that lasts as long as its client wants.
    pub(crate) fn begins(&mut self, now: Timestamp) {
        self.emit(Stage::ResponseStarted, now);
    }

    /// The answer is complete.
    pub(crate) fn ends(&mut self, now: Timestamp) {
        self.took(Duration::try_from(now.duration_since(self.received)).unwrap_or_default());
        self.emit(Stage::ResponseComplete, now);
    }

    /// The time of a slow request, and of the layers that took some of it. After `writeLatencyToAnnotation`.
    fn took(&mut self, total: Duration) {
        if total <= SLOW {
            return;
        }
        let latencies = std::mem::take(&mut self.latencies);
        let parts = latencies.into_iter().filter(|(_, it)| !it.is_zero());
        for (key, latency) in parts.chain([("apiserver.latency.k8s.io/total", total)]) {
            self.event.annotations.insert(key.into(), duration::text(latency));
        }
    }

    /// The request made the server panic.
    pub(crate) fn panicked(&mut self, status: &Status, now: Timestamp) {
        self.event.response_status = Some(status.into());
        self.emit(Stage::Panic, now);
    }

    fn emit(&mut self, stage: Stage, now: Timestamp) {
        if self.extent.omits(stage) {
            return;
        }
        self.event.stage = stage.as_str();
        self.event.stage_timestamp = micro_time(now);
        if let Ok(line) = serde_json::to_string(&self.event) {
            let mut line = escape_html(&line);
            line.push('\n');
            (self.sink)(&line);
        }
    }
}

/// The addresses that a request says it comes from, and the one it does come from.
fn source_ips(call: &Call) -> Vec<String> {
    let header = |name: &str| header(&call.parts.headers, name);
    let is_address = |text: &&str| text.parse::<std::net::IpAddr>().is_ok();
    let forwarded = header("x-forwarded-for").split(',').map(str::trim).filter(is_address);
    let mut found: Vec<String> = forwarded.map(str::to_owned).collect();
    let real = header("x-real-ip").trim();
    if is_address(&real) && !found.iter().any(|it| it == real) {
        found.push(real.to_owned());
    }
    let peer = call.parts.extensions.get::<Arrival>().map(|it| it.peer.to_string());
    if let Some(peer) = peer.filter(|peer| found.last() != Some(peer)) {
        found.push(peer);
    }
    found
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default()
}

/// `maybeTruncateUserAgent`
fn cut(user_agent: &str) -> String {
    match user_agent.get(..USER_AGENT_BYTES) {
        Some(start) if start.len() < user_agent.len() => format!("{start}...TRUNCATED"),
        Some(_) | None => user_agent.to_owned(),
    }
}

/// A time with microseconds, as `metav1.MicroTime` writes it.
fn micro_time(time: Timestamp) -> String {
    const MICROSECOND: u32 = 1000;
    let below = Duration::from_nanos(u64::try_from(time.subsec_nanosecond()).unwrap_or_default());
    let seconds = crate::entropy::seconds(time);
    let whole = seconds.strip_suffix('Z').unwrap_or(&seconds);
    format!("{whole}.{:06}Z", below.subsec_nanos() / MICROSECOND)
}
