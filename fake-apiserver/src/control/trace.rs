//! Shows the journal as a trace: an HTML page with every step, or the JSON document of the trace.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};

use super::answer::{Answer, accepts};
use super::controlled::Controlled;
use crate::trace::{Marks, Run, Trace};

/// Value of the header `Content-Security-Policy`. The page contains its other directives in a `meta` element; this one
/// only works in a header.
const POLICY: &str = "frame-ancestors 'none'";

pub(super) async fn read(State(it): State<Controlled>, headers: HeaderMap) -> Response {
    let run = Run::of(&it.server, "journal", 0, "", &Marks::default());
    let trace = Trace {
        title: "fake-apiserver".to_owned(),
        headline: format!("{} requests and events of this server", run.steps.len()),
        runs: vec![run],
        facts: vec![("resourceVersion".to_owned(), it.server.resource_version().to_string())],
        ..Trace::default()
    };
    if accepts(&headers, "application/json") {
        return Answer::Json(trace.to_json()).into_response();
    }
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (
            HeaderName::from_static("content-security-policy"),
            HeaderValue::from_static(POLICY),
        ),
    ];
    (headers, trace.to_html()).into_response()
}
