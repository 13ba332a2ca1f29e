//! Reads the bodies of orders, and writes answers and refusals.

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::middleware::Next;
use axum::response::IntoResponse;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::PREFIX;

/// The largest body: a world may be sent.
const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A document or a text.
pub(super) enum Answer {
    Json(Value),
    Text(String),
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response<Body> {
        match self {
            Self::Json(value) => respond(StatusCode::OK, "application/json", format!("{value}\n")),
            Self::Text(text) => respond(StatusCode::OK, "text/plain; charset=utf-8", text),
        }
    }
}

/// The reason for which an order is not carried out, and its status code.
pub(super) struct Refusal(StatusCode, String);

impl Refusal {
    pub(super) fn bad(reason: impl ToString) -> Self {
        Self(StatusCode::BAD_REQUEST, reason.to_string())
    }

    pub(super) fn absent(what: &str) -> Self {
        Self(StatusCode::NOT_FOUND, format!("there is no {what}"))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        refuse(self.0, &self.1)
    }
}

pub(super) type Answered = Result<Answer, Refusal>;

/// Answers `{"error": reason}`.
pub(crate) fn refuse(code: StatusCode, reason: &str) -> Response<Body> {
    respond(code, "application/json", format!("{}\n", json!({"error": reason})))
}

fn respond(code: StatusCode, kind: &'static str, text: String) -> Response<Body> {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (code, headers, text).into_response()
}

/// Reads a body whole. It must be JSON, objects may be YAML, and its `Content-Type` must say so: a form that a page in
/// a browser sends is neither.
pub(super) async fn check_body(request: Request, next: Next) -> Result<Response<Body>, Refusal> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, BODY_BYTES_MAX)
        .await
        .map_err(|error| Refusal(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()))?;
    let types: &[&str] = match parts.uri.path().strip_prefix(PREFIX) {
        Some("/objects") => &["application/json", "application/yaml"],
        _ => &["application/json"],
    };
    if !body.is_empty() && !has_type(&parts.headers, types) {
        return Err(Refusal(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("the body must be {} and say so in Content-Type", types.join(" or ")),
        ));
    }
    Ok(next.run(Request::from_parts(parts, body.into())).await)
}

fn has_type(headers: &HeaderMap, types: &[&str]) -> bool {
    let sent = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let sent = sent.and_then(|it| it.split(';').next()).unwrap_or_default().trim();
    types.iter().any(|it| it.eq_ignore_ascii_case(sent))
}

/// Returns `true` if `Accept` names a media type itself; `*/*` asks for the usual one.
pub(super) fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let named = headers.get_all(ACCEPT).iter().filter_map(|it| it.to_str().ok());
    let mut clauses = named.flat_map(|it| it.split(','));
    clauses.any(|it| {
        it.split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .eq_ignore_ascii_case(kind)
    })
}

/// An order in the body; no body is an empty order.
pub(super) struct Order<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Order<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        let body = to_bytes(request.into_body(), BODY_BYTES_MAX)
            .await
            .map_err(Refusal::bad)?;
        let body = if body.is_empty() {
            Bytes::from_static(b"{}")
        } else {
            body
        };
        serde_json::from_slice(&body).map(Self).map_err(Refusal::bad)
    }
}

/// A number in the query.
pub(super) fn number(uri: &Uri, name: &str) -> Result<Option<u64>, Refusal> {
    let pairs = uri.query().unwrap_or_default().split('&');
    let value = pairs
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name);
    value
        .map(|(_, value)| {
            value
                .parse()
                .map_err(|_| Refusal::bad(format!("{name}={value} is not a number")))
        })
        .transpose()
}

pub(super) async fn unknown_path(method: Method, uri: Uri) -> Refusal {
    Refusal::absent(&format!("{method} {}", uri.path()))
}

pub(super) async fn unknown_method(method: Method, uri: Uri) -> Refusal {
    let path = uri.path().strip_prefix(PREFIX).unwrap_or(uri.path());
    let path = path.trim_matches('/');
    let word = path.split('/').next().unwrap_or_default();
    Refusal(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not for {word}"))
}

pub(super) async fn help() -> Answer {
    Answer::Text(HELP.to_owned())
}

pub(super) async fn open_api() -> Answered {
    serde_json::from_str(OPEN_API).map(Answer::Json).map_err(Refusal::bad)
}

/// The OpenAPI document.
const OPEN_API: &str = include_str!("openapi.json");

/// The list as text.
const HELP: &str = "\
GET    /_fake/openapi.json   this list as an OpenAPI document
POST   /_fake/faults         inject a fault: {\"effect\": \"conflict\", \"on\": {\"verbs\": [\"update\"]}, \"times\": 1}
GET    /_fake/faults         active faults
DELETE /_fake/faults[/N]     end all faults, or one
GET    /_fake/watches        open watches
POST   /_fake/watches        control watches: {\"on\": {\"resource\": \"pods\"}, \"do\": \"hold\"}
GET    /_fake/journal        requests and events; ?since=N
GET    /_fake/journal/{number} one of them with its answer
DELETE /_fake/journal        forget them
POST   /_fake/replicas       {\"client\": \"operator\", \"sees\": {\"behind\": 3}}
POST   /_fake/clocks         {\"client\": \"operator\", \"aheadMs\": 5000}
POST   /_fake/pods           {\"pods\": {\"labels\": \"app=db\"}, \"script\": {\"crashLoop\": true}}
DELETE /_fake/pods           remove the scripts of Pods
POST   /_fake/compact        forget history
POST   /_fake/restart        {\"log\": \"lost\", \"downMs\": 2000}
POST   /_fake/snapshot       keep the state
GET    /_fake/snapshot       kept states
POST   /_fake/restore        {\"snapshot\": 1}
GET    /_fake/diff?from=N    changes since a state was kept
GET    /_fake/objects        all objects with their owners; ?snapshot=N
GET    /_fake/objects/{uid}  one object
GET    /_fake/world          all objects as YAML
POST   /_fake/objects        store objects as they are
POST   /_fake/events         {\"type\": \"DELETED\", \"object\": {...}}

In a browser /_fake/ shows all of it.
";
