//! Reads the bodies of requests to the control API, and writes responses and errors.

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::middleware::Next;
use axum::response::IntoResponse;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::PREFIX;

/// Maximum size of a request body, which may contain all objects of a server.
const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A successful response: a document or plain text.
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

/// The status code of a refused request, and the reason.
pub(super) struct Refusal(StatusCode, String);

impl Refusal {
    pub(super) fn bad(reason: impl ToString) -> Self {
        Self(StatusCode::BAD_REQUEST, reason.to_string())
    }

    pub(super) fn gone(reason: &str) -> Self {
        Self(StatusCode::GONE, reason.to_owned())
    }

    /// Refuses a request that needs a feature which this build lacks.
    #[cfg(not(feature = "workers"))]
    pub(super) fn unsupported(reason: &str) -> Self {
        Self(StatusCode::NOT_IMPLEMENTED, reason.to_owned())
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

/// Returns a response with the body `{"error": reason}`.
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

/// Reads the whole body. A non-empty body must have the `Content-Type` of JSON, or of YAML for `/objects`. An HTML form
/// in a browser cannot send these types.
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
            format!("the body must be {} with a matching Content-Type", types.join(" or ")),
        ));
    }
    Ok(next.run(Request::from_parts(parts, body.into())).await)
}

fn has_type(headers: &HeaderMap, types: &[&str]) -> bool {
    let sent = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let sent = sent.and_then(|it| it.split(';').next()).unwrap_or_default().trim();
    types.iter().any(|it| it.eq_ignore_ascii_case(sent))
}

/// Returns `true` if `Accept` contains this media type; `*/*` does not count and selects the default.
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

/// A decoded request body; with an empty body, all fields have their defaults.
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

/// Returns a query parameter without decoding it.
fn parameter<'u>(uri: &'u Uri, name: &str) -> Option<&'u str> {
    let pairs = uri.query().unwrap_or_default().split('&');
    let mut pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// Returns a decoded query parameter; empty if it is absent.
pub(super) fn text(uri: &Uri, name: &str) -> String {
    let value = parameter(uri, name).unwrap_or_default();
    percent_decode_str(value).decode_utf8_lossy().into_owned()
}

/// Returns a numeric query parameter.
pub(super) fn number(uri: &Uri, name: &str) -> Result<Option<u64>, Refusal> {
    parameter(uri, name)
        .map(|value| {
            value.parse().map_err(|_| {
                Refusal::bad(format!(
                    "parameter {name} must be a non-negative integer, not {value:?}"
                ))
            })
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
    Refusal(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{word} does not support {method}"),
    )
}

pub(super) async fn help() -> Answer {
    Answer::Text(HELP.to_owned())
}

pub(super) async fn open_api() -> Answered {
    serde_json::from_str(OPEN_API).map(Answer::Json).map_err(Refusal::bad)
}

/// The OpenAPI document.
const OPEN_API: &str = include_str!("openapi.json");

/// The list of requests as plain text.
const HELP: &str = "\
GET    /_fake/openapi.json   this list as an OpenAPI document
POST   /_fake/faults         inject a fault: {\"effect\": \"conflict\", \"on\": {\"verbs\": [\"update\"]}, \"times\": 1}
GET    /_fake/faults         active faults
DELETE /_fake/faults[/N]     end all faults, or one
GET    /_fake/watches        open watches
POST   /_fake/watches        control watches: {\"on\": {\"resource\": \"pods\"}, \"do\": \"hold\"}
GET    /_fake/journal        requests and events; ?since=N
GET    /_fake/journal/{number} one entry with its response
DELETE /_fake/journal        delete all entries
GET    /_fake/trace          a page with every step of the journal and the fields that each write changed
POST   /_fake/replicas       {\"client\": \"operator\", \"sees\": {\"behind\": 3}}
POST   /_fake/clocks         {\"client\": \"operator\", \"aheadMs\": 5000}
POST   /_fake/pods           {\"pods\": {\"labels\": \"app=db\"}, \"script\": {\"crashLoop\": true}}
DELETE /_fake/pods           remove the scripts of Pods
POST   /_fake/nodes          {\"node\": \"node-0\", \"kubelet\": \"stopped\"}, or \"running\"
POST   /_fake/compact        compact the history
POST   /_fake/restart        {\"log\": \"lost\", \"downMs\": 2000}
POST   /_fake/snapshot       save the state
GET    /_fake/snapshot       saved states
POST   /_fake/restore        {\"snapshot\": 1}
GET    /_fake/diff?from=N    changes since a state was saved
GET    /_fake/kinds          kinds that have objects, with their counts in each namespace
GET    /_fake/search         ?text=shop: objects of all kinds, by kind, name, namespace and labels
GET    /_fake/table          ?resource=deployments.apps[&namespace=shop]: as kubectl get shows them
GET    /_fake/changes        ?since=N: writes in the history
GET    /_fake/objects        all objects with their owners; ?snapshot=N or ?at=REVISION selects a state
GET    /_fake/objects/{uid}  one object
GET    /_fake/objects/{uid}/history its revisions: the changes and the author of each write
GET    /_fake/objects/{uid}/related its owners, the objects that it owns, and Events about it
GET    /_fake/world          all objects as YAML
POST   /_fake/objects        store objects unchanged
POST   /_fake/events         {\"type\": \"DELETED\", \"object\": {...}}

In a browser, /_fake/ shows a page for these requests.
";
