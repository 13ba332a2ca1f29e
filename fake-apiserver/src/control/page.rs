//! The page that shows a server in a browser: its cluster, its journal and the control API. The page itself contains no
//! data of the server, so it can be loaded without a token; its requests need the permissions of the control API.

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

/// The HTML document, with empty style and script elements.
const DOCUMENT: &str = include_str!("page/page.html");

const STYLE: &str = include_str!("page/page.css");

/// The scripts in the order in which they are joined.
const SCRIPTS: [&str; 13] = [
    include_str!("page/base.js"),
    include_str!("page/yaml.js"),
    include_str!("page/api.js"),
    include_str!("page/list.js"),
    include_str!("page/journal.js"),
    include_str!("page/timeline.js"),
    include_str!("page/controls.js"),
    include_str!("page/cluster.js"),
    include_str!("page/object.js"),
    include_str!("page/search.js"),
    include_str!("page/compare.js"),
    include_str!("page/keys.js"),
    include_str!("page/start.js"),
];

/// Path of the page.
const PATH: &str = "/_fake/";

/// The complete page, and its Content-Security-Policy.
struct Page {
    html: String,
    policy: HeaderValue,
}

/// Returns `true` if a request is for the page. Browsers may omit the slash at the end of the path.
pub(crate) fn is_page(parts: &Parts) -> bool {
    let path = parts.uri.path();
    path == PATH || (path == PREFIX && reads(&parts.method) && accepts(&parts.headers, "text/html"))
}

fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Handles a request for the page.
pub(crate) fn page(parts: &Parts) -> Response<Body> {
    if !reads(&parts.method) {
        let refusal = refuse(StatusCode::METHOD_NOT_ALLOWED, "the page only supports GET and HEAD");
        return ([(ALLOW, HeaderValue::from_static("GET, HEAD"))], refusal).into_response();
    }
    let mut headers = HeaderMap::new();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if parts.uri.path() != PATH {
        headers.insert(LOCATION, HeaderValue::from_static(PATH));
        return (StatusCode::TEMPORARY_REDIRECT, headers).into_response();
    }
    let page = whole();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, page.policy.clone());
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let opener = HeaderName::from_static("cross-origin-opener-policy");
    headers.insert(opener, HeaderValue::from_static("same-origin"));
    match parts.method == Method::HEAD {
        true => headers.into_response(),
        false => (headers, page.html.as_str()).into_response(),
    }
}

/// Joins the parts of the page, once per process. The policy permits the page's own script and style, and requests to
/// its own server. It forbids other pages from embedding this page in a frame, to prevent clickjacking, and it forbids
/// converting strings into HTML.
fn whole() -> &'static Page {
    static WHOLE: OnceLock<Page> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let script = SCRIPTS.concat();
        let html = DOCUMENT
            .replacen("<style></style>", &format!("<style>{STYLE}</style>"), 1)
            .replacen("<script></script>", &format!("<script>{script}</script>"), 1);
        let policy = format!(
            "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
            hash(&script),
            hash(STYLE)
        );
        Page {
            html,
            // Without a valid policy, the page cannot run scripts.
            policy: HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'")),
        }
    })
}

/// Returns the hash of a script or style in the syntax of a Content-Security-Policy.
fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)))
}
