//! Audit records of requests: created when the user is authenticated, and extended when the body has been read.

use std::sync::Arc;

use http::{HeaderMap, Method};
use jiff::Timestamp;

use super::Audit;
use super::event::{AuditEvent, ObjectReference, ResponseStatus, User};
use super::policy::{Level, Stage};
use super::record::{Record, micro_time};
use crate::api::arrival::Arrival;
use crate::api::object::Object;
use crate::api::options::FieldValidation;
use crate::api::rbac::Attributes;
use crate::api::request_info::ResourcePath;
use crate::api::status::Status;
use crate::api::user::UserInfo;
use crate::api::yaml;
use crate::endpoints::Endpoints;
use crate::endpoints::call::Call;
use crate::endpoints::decode;
use crate::registry::request::{Annotations, Latencies};
use crate::registry::scheme::Row;

/// Maximum length of the `User-Agent` in an event, in bytes; longer ones are truncated.
const USER_AGENT_BYTES: usize = 1024;

/// Starts the record of an authenticated request, if the policy selects it.
pub(crate) fn begin(server: &Endpoints, call: &mut Call, path: &str, request: &Attributes<'_>) {
    if let Some(audit) = &server.audit
        && let Some(mut record) = record(server, audit, call, path, request, Some(&call.user))
    {
        record.emit(Stage::RequestReceived, server.registry.reader.entropy.now());
        call.record = Some(Box::new(record));
        call.remarks.annotations = Annotations::kept();
    }
}

/// Records an unauthenticated request, which has only one stage. Modelled on `WithFailedAuthenticationAudit`.
pub(crate) fn unauthenticated(server: &Endpoints, call: &Call, path: &str, request: &Attributes<'_>, refused: &Status) {
    let Some(audit) = &server.audit else { return };
    let Some(mut record) = record(server, audit, call, path, request, None) else {
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

/// Adds the body of a request to its record, if the body can be decoded.
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

/// Returns the body as an object, like `LogRequestObject`. Defaults are only applied if the event contains the object.
fn body_of(record: &Record, call: &Call, row: &Row) -> Result<Object, Status> {
    let is_of_row = matches!(call.parts.method, Method::POST | Method::PUT)
        && call.info.as_ref().is_some_and(|it| it.subresource.is_empty());
    if is_of_row && record.extent.level >= Level::Request {
        return decode::object(row, call, None, FieldValidation::Ignore).map(|it| it.object);
    }
    decode::sent(row, call).map(|it| it.object)
}

/// Returns a new record, if the policy selects the request.
fn record(
    server: &Endpoints,
    audit: &Audit,
    call: &Call,
    path: &str,
    request: &Attributes<'_>,
    user: Option<&UserInfo>,
) -> Option<Record> {
    let extent = audit.policy.extent(user, request)?;
    let found = ResourcePath::parse(path);
    let entropy = &server.registry.reader.entropy;
    let waited = entropy.elapsed().saturating_sub(call.started);
    let received = entropy.now().saturating_sub(waited).unwrap_or(Timestamp::MIN);
    let uri = &call.parts.uri;
    let event = AuditEvent {
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
        ..AuditEvent::default()
    };
    Some(Record {
        event,
        extent,
        received,
        latencies: Latencies::new(),
        sink: Arc::clone(&audit.sink),
    })
}

/// Returns the addresses in the headers of a request, and the address of its connection.
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

/// Truncates a long `User-Agent` (`maybeTruncateUserAgent`).
fn cut(user_agent: &str) -> String {
    match user_agent.get(..USER_AGENT_BYTES) {
        Some(start) if start.len() < user_agent.len() => format!("{start}...TRUNCATED"),
        Some(_) | None => user_agent.to_owned(),
    }
}
