//! Filters before routing and after answering: steps that every request passes.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::Endpoints;
use super::audit::Record;
use super::broken::NoAnswer;
use super::encode;
use super::journal::{Journal, RecordedRequest, StoredAnswer};
use super::metrics::{CONNECTIONS, Seat};
use crate::api::arrival::Arrival;
use crate::api::duration;
use crate::api::options::Query;
use crate::api::request_info::{ClientName, RequestInfo, ResourcePath};
use crate::api::status::Status;
use crate::api::user::{SentBy, UserInfo};
use crate::entropy::Entropy;
use crate::faults::Seen;
use crate::registry::request::Remarks;

/// The largest body (rule A20).
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// A request in progress.
#[derive(Debug)]
pub(crate) struct Call {
    /// Method, path, headers.
    pub(crate) parts: Parts,
    /// The parameters.
    pub(crate) query: Query,
    /// The body, once it has been read.
    pub(crate) body: Bytes,
    /// The resource request, once it has been routed.
    pub(crate) info: Option<RequestInfo>,
    /// Warning for a deprecated kind (rules O13, U5).
    pub(crate) deprecation: Option<String>,
    /// Set if the kind is built in: then a request without a route gets no warning.
    pub(crate) has_routes: bool,
    /// User that sent the request.
    pub(crate) user: Arc<UserInfo>,
    /// Remarks of its handling: warnings for the client, annotations of its audit event.
    pub(crate) remarks: Remarks,
    /// Client that sent the request: the name of an in-process client, else its `User-Agent`.
    pub(crate) client: Arc<str>,
    /// The verdicts of the faults that struck it.
    pub(crate) struck: Vec<String>,
    /// Set once the user's rights are checked.
    pub(crate) is_admitted: bool,
    /// Its place among the requests in progress; none for watches and connections.
    pub(crate) seat: Option<Seat>,
    /// Its audit event, if there is one.
    pub(crate) record: Option<Box<Record>>,
    /// Time of arrival.
    pub(crate) started: Duration,
    /// Set if it lasts for as long as its client wants.
    pub(crate) is_long_running: bool,
    audit_id: HeaderValue,
    /// Its number among all requests, counted from 1.
    number: u64,
}

impl Call {
    pub(crate) fn new(parts: Parts, entropy: &Entropy, user: Arc<UserInfo>, number: u64) -> Self {
        let audit_id = parts.headers.get(AUDIT_ID).cloned();
        let audit_id = audit_id.or_else(|| HeaderValue::try_from(entropy.uid()).ok());
        let client = match parts.extensions.get::<ClientName>() {
            Some(ClientName(name)) => Arc::clone(name),
            None => text(&parts.headers, &header::USER_AGENT).unwrap_or_default().into(),
        };
        let query = Query::parse(parts.uri.query());
        Self {
            is_long_running: is_long_running(&parts.method, parts.uri.path(), &query),
            client,
            remarks: Remarks::default(),
            struck: Vec::new(),
            is_admitted: false,
            seat: None,
            record: None,
            number,
            query,
            body: Bytes::new(),
            info: None,
            deprecation: None,
            has_routes: false,
            user,
            audit_id: audit_id.unwrap_or(HeaderValue::from_static("")),
            started: entropy.elapsed(),
            parts,
        }
    }

    /// The number by which logs name it.
    pub(crate) fn audit_id(&self) -> &str {
        self.audit_id.to_str().unwrap_or_default()
    }

    /// A header as text; `None` if it is absent or no text.
    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        text(&self.parts.headers, name)
    }

    /// `Accept`; several headers count as one list.
    pub(crate) fn accept(&self) -> Option<String> {
        let mut values = self
            .parts
            .headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|it| it.to_str().ok());
        let first = values.next()?.to_owned();
        Some(values.fold(first, |list, next| list + "," + next))
    }

    /// `User-Agent`
    pub(crate) fn user_agent(&self) -> &str {
        self.header(&header::USER_AGENT).unwrap_or_default()
    }

    /// Returns `true` if JSON is to be indented (rule A31).
    pub(crate) fn wants_pretty(&self) -> bool {
        let browser = |agent: &str| ["curl", "Wget", "Mozilla/5.0"].iter().any(|it| agent.starts_with(it));
        self.query.flag("pretty").unwrap_or_else(|| browser(self.user_agent()))
    }

    /// Returns `true` if a large answer may be compressed.
    pub(crate) fn accepts_gzip(&self) -> bool {
        self.header(&header::ACCEPT_ENCODING).is_some_and(|list| {
            list.split(',')
                .any(|it| it.split(';').next().unwrap_or_default().trim() == "gzip")
        })
    }

    /// Returns `true` if the request is counted with those that write.
    pub(crate) fn is_mutating(&self) -> bool {
        !matches!(self.parts.method, Method::GET | Method::HEAD)
    }

    /// The request as faults see it.
    pub(crate) fn seen<'a>(&'a self, info: &'a RequestInfo) -> Seen<'a> {
        Seen {
            number: self.number,
            at: self.started,
            info,
            client: &self.client,
            user_agent: self.user_agent(),
            worker: self.parts.extensions.get::<SentBy>().map(|it| it.0),
            method: &self.parts.method,
            path: self.parts.uri.path_and_query().map_or("", |it| it.as_str()),
            body: &self.body,
        }
    }

    /// Gives the answer its common headers and writes it into the journal.
    pub(crate) fn finish(self, mut response: Response<Body>, journal: &Journal, now: Duration) -> Response<Body> {
        response.headers_mut().insert(AUDIT_ID, self.audit_id);
        let code = response.status().as_u16();
        // The router compares the method, and the media type of a patch; a watch is refused behind it.
        let is_unrouted = match self.parts.method {
            Method::GET => false,
            Method::PATCH => code == 405 || code == 415,
            _ => code == 405,
        };
        let headers = response.headers_mut();
        if let Some(text) = self.deprecation.as_ref().filter(|_| !(self.has_routes && is_unrouted)) {
            encode::add_warning(headers, text);
        }
        if !headers.contains_key(header::CACHE_CONTROL) {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        }
        let (answer, stored) = match response.extensions_mut().remove::<KeptAnswer>() {
            Some(KeptAnswer::Whole(bytes)) => (Some(bytes), None),
            Some(KeptAnswer::Stored(stored)) => (None, Some(stored)),
            None => (None, None),
        };
        journal.record_request(RecordedRequest {
            started: self.started,
            user: self.user,
            answered: now,
            user_agent: text(&self.parts.headers, &header::USER_AGENT)
                .unwrap_or_default()
                .into(),
            worker: self.parts.extensions.get::<SentBy>().map(|it| it.0),
            path: self
                .parts
                .uri
                .path_and_query()
                .map_or_else(String::new, ToString::to_string),
            method: self.parts.method,
            info: self.info,
            client: self.client,
            faults: self.struck,
            request_body: self.body,
            code: match response.extensions().get::<NoAnswer>() {
                Some(_) => 0,
                None => response.status().as_u16(),
            },
            answer,
            stored,
            is_cut: false,
        });
        response
    }
}

/// Returns `true` for a watch, a log or a connection. After `BasicLongRunningRequestCheck` of k8s.io/apiserver.
fn is_long_running(method: &Method, path: &str, query: &Query) -> bool {
    ResourcePath::parse(path).is_some_and(|it| {
        let connection = it
            .subresource
            .split_once('/')
            .map_or(it.subresource, |(first, _)| first);
        let is_watch = it.legacy_watch || (it.name.is_empty() && query.flag("watch").unwrap_or(false));
        (is_watch && *method == Method::GET) || CONNECTIONS.contains(&connection)
    })
}

/// The whole of an answer, left beside it for the journal.
#[derive(Clone, Debug)]
pub(crate) enum KeptAnswer {
    /// Its body.
    Whole(Bytes),
    /// The stored object it shows.
    Stored(StoredAnswer),
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

impl Endpoints {
    /// Checks where a request comes from, and not its user; else 403 or 415.
    pub(crate) fn check_arrival(&self, parts: &Parts) -> Result<(), Status> {
        check_arrival(parts)
    }
}

/// Refuses what a page in a browser can send to a server on its user's machine. Only requests over sockets are looked
/// at; see [`Arrival`].
pub(crate) fn check_arrival(parts: &Parts) -> Result<(), Status> {
    let Some(arrival) = parts.extensions.get::<Arrival>() else {
        return Ok(());
    };
    // Every one is checked: which of them an intermediary believes is not known.
    let named = parts.headers.get_all(header::HOST).iter().map(lossy);
    let asked = parts.uri.authority().map(|it| Cow::Borrowed(it.as_str()));
    let hosts: Vec<Cow<'_, str>> = asked.into_iter().chain(named).collect();
    if let Some(foreign) = hosts.iter().find(|host| !arrival.hosts.accept(host)) {
        return Err(Status::foreign_host(foreign));
    }
    for origin in parts.headers.get_all(header::ORIGIN).iter().map(lossy) {
        let (_, authority) = origin.split_once("://").unwrap_or_default();
        if authority.is_empty() || hosts.first().map(Cow::as_ref) != Some(authority) {
            return Err(Status::foreign_origin(&origin));
        }
    }
    if is_embedded_elsewhere(parts) {
        return Err(Status::embedded());
    }
    let writes = matches!(parts.method, Method::POST | Method::PUT | Method::PATCH);
    let is_typed = !arrival.has_body || parts.headers.contains_key(header::CONTENT_TYPE);
    if writes && !is_typed && is_of_a_browser(&parts.headers) {
        return Err(Status::no_content_type());
    }
    Ok(())
}

/// Returns `true` if a page of another origin loads the answer as a script, an image, a frame or the like. Such a
/// request needs no `Origin`, and the page can see if it succeeds. A link that is followed is no such request.
fn is_embedded_elsewhere(parts: &Parts) -> bool {
    let says = |name: &'static str, value: &str| text(&parts.headers, &HeaderName::from_static(name)) == Some(value);
    let is_followed =
        parts.method == Method::GET && says("sec-fetch-mode", "navigate") && says("sec-fetch-dest", "document");
    (says("sec-fetch-site", "cross-site") || says("sec-fetch-site", "same-site")) && !is_followed
}

/// The text of a header; bytes that are none make it one that is accepted nowhere.
fn lossy(value: &HeaderValue) -> Cow<'_, str> {
    String::from_utf8_lossy(value.as_bytes())
}

/// Returns `true` if a browser sent the request: no other client names the origin of a page or how it was fetched.
/// Others may leave out the type of a body, which kube-apiserver takes for JSON: the Python client does.
fn is_of_a_browser(headers: &HeaderMap) -> bool {
    const MARKS: [HeaderName; 5] = [
        header::ORIGIN,
        header::REFERER,
        HeaderName::from_static("sec-fetch-site"),
        HeaderName::from_static("sec-fetch-mode"),
        HeaderName::from_static("sec-fetch-dest"),
    ];
    let agent = text(headers, &header::USER_AGENT).unwrap_or_default();
    agent.starts_with("Mozilla/") || MARKS.iter().any(|name| headers.contains_key(name))
}

/// Reads a body whole, within the limit.
pub(crate) async fn read_body(parts: &Parts, body: Body) -> Result<Bytes, Status> {
    let too_large = || Status::too_large(format!("Request entity too large: limit is {BODY_BYTES_MAX}"));
    if matches!(parts.method, http::Method::GET | http::Method::HEAD) {
        return Ok(Bytes::new());
    }
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(Status::bad_request(format!(
            "the body of the request could not be read: {error}"
        ))),
    }
}

/// `?timeout=` must be a duration (rule A24). Nothing here takes long enough for one to run out.
pub(crate) fn check_timeout(call: &Call) -> Result<(), Status> {
    let Some(text) = call.query.get("timeout").filter(|it| !it.is_empty()) else {
        return Ok(());
    };
    match duration::parse(text) {
        Ok(_) => Ok(()),
        Err(why) => Err(Status::bad_request(format!(
            "invalid timeout specified in the request URL - {why}"
        ))),
    }
}
