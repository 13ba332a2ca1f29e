//! The page that shows the control API in a browser. It holds no data of the server, so it needs no token;
//! its requests need the rights of the control API.

use std::sync::OnceLock;

use axum::body::Body;
use axum::response::IntoResponse;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, LOCATION, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use sha2::{Digest as _, Sha256};

use super::PREFIX;
use super::answer::{accepts, refuse};

/// HTML, style and program in one.
const PAGE: &str = include_str!("page.html");

/// Path of the page.
const PATH: &str = "/_fake/";

/// Returns `true` if a request is for the page: for its path, or by a browser for the path without the slash.
pub(crate) fn is_page(parts: &Parts) -> bool {
    let path = parts.uri.path();
    path == PATH || (path == PREFIX && reads(&parts.method) && accepts(&parts.headers, "text/html"))
}

fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Answers a request for the page.
pub(crate) fn page(parts: &Parts) -> Response<Body> {
    if !reads(&parts.method) {
        let refusal = refuse(StatusCode::METHOD_NOT_ALLOWED, "the page can only be read");
        return ([(ALLOW, HeaderValue::from_static("GET, HEAD"))], refusal).into_response();
    }
    let mut headers = HeaderMap::new();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if parts.uri.path() != PATH {
        headers.insert(LOCATION, HeaderValue::from_static(PATH));
        return (StatusCode::TEMPORARY_REDIRECT, headers).into_response();
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, policy().clone());
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let opener = HeaderName::from_static("cross-origin-opener-policy");
    headers.insert(opener, HeaderValue::from_static("same-origin"));
    match parts.method == Method::HEAD {
        true => headers.into_response(),
        false => (headers, PAGE).into_response(),
    }
}

/// Permits the page its own script and style, and requests to its own server. Frames are forbidden, since another page
/// could direct clicks into one, and so is turning text into HTML.
fn policy() -> &'static HeaderValue {
    static POLICY: OnceLock<HeaderValue> = OnceLock::new();
    POLICY.get_or_init(|| {
        let policy = format!(
            "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
            hash("<script>", "</script>"),
            hash("<style>", "</style>")
        );
        // Without its policy the page runs no script.
        HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
    })
}

/// The hash of what stands between two tags, as a policy names it.
fn hash(begin: &str, end: &str) -> String {
    let within = PAGE.split_once(begin).and_then(|(_, rest)| rest.split_once(end));
    let text = within.map_or("", |(text, _)| text);
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)))
}
