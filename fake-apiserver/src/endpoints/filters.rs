//! Checks of the origin and the timeout, reading of the body, and completion of responses.

use std::borrow::Cow;
use std::time::Duration;

use axum_core::body::Body;
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Method, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::Endpoints;
use super::authentication;
use super::broken::NoAnswer;
use super::call::{AUDIT_ID, Call, KeptAnswer, text};
use super::encode;
use super::journal::{Journal, RecordedRequest};
use crate::api::arrival::Arrival;
use crate::api::duration;
use crate::api::status::Status;
use crate::api::user::SentBy;

/// Maximum size of a body (rule A20).
const BODY_BYTES_MAX: usize = 3 * 1024 * 1024;

impl Endpoints {
    /// Checks the origin of a request, but not its user. Fails with 403 or 415.
    pub(crate) fn check_arrival(&self, parts: &Parts) -> Result<(), Status> {
        check_arrival(parts)
    }

    /// Checks that a request may use the control API. Fails with 401, 403 or 415.
    pub(crate) fn admit_master(&self, parts: &Parts) -> Result<(), Status> {
        check_arrival(parts)?;
        authentication::admit_master(self, parts)
    }
}

/// Refuses requests that a web page in a browser could send to a server on the user's machine. Only requests over
/// sockets are checked; see [`Arrival`].
pub(crate) fn check_arrival(parts: &Parts) -> Result<(), Status> {
    let Some(arrival) = parts.extensions.get::<Arrival>() else {
        return Ok(());
    };
    // All `Host` headers are checked, because intermediaries may use any of them.
    let named = parts.headers.get_all(header::HOST).iter().map(lossy);
    let asked = parts.uri.authority().map(|it| Cow::Borrowed(it.as_str()));
    let hosts: Vec<Cow<'_, str>> = asked.into_iter().chain(named).collect();
    if let Some(foreign) = hosts.iter().find(|host| !arrival.hosts.accept(host)) {
        return Err(Status::foreign_host(foreign));
    }
    // Requests with `Authorization` are exempt: a page can send this header to another origin only if the server
    // permits it, and this server never does. Go's WebSocket client sends an `Origin` with each request.
    let names_user = parts.headers.contains_key(header::AUTHORIZATION);
    let origins = parts.headers.get_all(header::ORIGIN).iter().filter(|_| !names_user);
    for origin in origins.map(lossy) {
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

/// Returns `true` if a page of a different origin loads the response as a script, an image, a frame or similar. Such
/// requests lack an `Origin`, and the page can detect whether they succeed. Returns `false` if a user follows a link.
fn is_embedded_elsewhere(parts: &Parts) -> bool {
    let says = |name: &'static str, value: &str| text(&parts.headers, &HeaderName::from_static(name)) == Some(value);
    let is_followed =
        parts.method == Method::GET && says("sec-fetch-mode", "navigate") && says("sec-fetch-dest", "document");
    (says("sec-fetch-site", "cross-site") || says("sec-fetch-site", "same-site")) && !is_followed
}

/// Returns a header value as a string; invalid bytes are replaced by a character that never matches.
fn lossy(value: &HeaderValue) -> Cow<'_, str> {
    String::from_utf8_lossy(value.as_bytes())
}

/// Returns `true` if a browser sent the request: only browsers send the origin of a page or the fetch mode. Other
/// clients, such as the Python client, may omit the `Content-Type` of a body, which kube-apiserver then treats as JSON.
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

/// Reads the whole body, up to the limit. The body of a GET or HEAD is ignored.
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

/// Checks that `?timeout=` is a duration, except for long-running requests (rule A24). The timeout is not enforced,
/// because this server handles requests almost immediately.
pub(crate) fn check_timeout(call: &Call) -> Result<(), Status> {
    let timeout = call.query.get("timeout").filter(|it| !it.is_empty());
    let Some(text) = timeout.filter(|_| !call.is_long_running) else {
        return Ok(());
    };
    match duration::parse(text) {
        Ok(_) => Ok(()),
        Err(why) => Err(Status::bad_request(format!(
            "invalid timeout specified in the request URL - {why}"
        ))),
    }
}

/// Adds the common headers to the response, and records it in the journal.
pub(crate) fn finish(call: Call, mut response: Response<Body>, journal: &Journal, now: Duration) -> Response<Body> {
    const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache, private");
    response.headers_mut().insert(AUDIT_ID, call.audit_id);
    let code = response.status().as_u16();
    // In Go, errors of the router do not have this warning. The router checks the method, and the media type of a
    // patch; watches are refused later.
    let is_unrouted = match call.parts.method {
        Method::GET => false,
        Method::PATCH => code == 405 || code == 415,
        _ => code == 405,
    };
    let headers = response.headers_mut();
    if let Some(text) = call.deprecation.as_ref().filter(|_| !(call.has_routes && is_unrouted)) {
        encode::add_first_warning(headers, text);
    }
    if code == 403 && !call.is_admitted {
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, NO_CACHE);
    }
    let (answer, stored) = match response.extensions_mut().remove::<KeptAnswer>() {
        Some(KeptAnswer::Whole(bytes)) => (Some(bytes), None),
        Some(KeptAnswer::Stored(stored)) => (None, Some(stored)),
        None => (None, None),
    };
    journal.record_request(RecordedRequest {
        started: call.started,
        user: call.user,
        answered: now,
        user_agent: call.user_agent,
        worker: call.parts.extensions.get::<SentBy>().map(|it| it.0),
        path: call
            .parts
            .uri
            .path_and_query()
            .map_or_else(String::new, |it| it.as_str().to_owned()),
        method: call.parts.method,
        info: call.info,
        client: call.client,
        faults: call.struck,
        request_body: call.body,
        code: match response.extensions().get::<NoAnswer>() {
            Some(_) => 0,
            None => response.status().as_u16(),
        },
        answer,
        stored,
        lost: call.lost,
        is_cut: false,
    });
    response
}
