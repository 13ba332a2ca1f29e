//! Documents served without reading objects: discovery, OpenAPI, version, health and the list of paths. They are the
//! routes of a router, which a request for a resource never reaches.

mod ordered;

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::handler::Handler;
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, any, get};
use axum::{Extension, Router};
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, Uri};
use tower::ServiceExt as _;

use super::call::Call;
use super::negotiation::{self, Discovery, Encoding, Served};
use super::openapi::{self, CustomSchema, OpenApi};
use super::{Endpoints, discovery, encode, metrics, yaml};
use crate::api::json::{Value, json};
use crate::api::options::Query;
use crate::api::resource::ResourceInfo;
use crate::api::status::Status;
use crate::registry::scheme::Scheme;
use ordered::Ordered;

/// The media type of documents that come in no other form.
const JSON: &str = "application/json";

/// The media type of a set of keys.
const KEY_SET: &str = "application/jwk-set+json";

/// The address that `/api` reports; clients do not use it.
const SERVER_ADDRESS: &str = "127.0.0.1:443";

/// The documents. They are the same for all servers, so a request brings its own along, as [`Asked`].
static ROUTES: LazyLock<Router> = LazyLock::new(|| {
    let mut routes = Router::new()
        .route("/", any(paths))
        .route("/version", only_get(version))
        .route("/api", only_get(core_versions))
        .route("/apis", any(groups))
        .route("/api/{version}", any(group_document))
        .route("/apis/{group}", any(group_document))
        .route("/apis/{group}/{version}", any(group_document))
        .route("/openapi/v2", any(open_api_v2))
        .route("/openapi/v3", any(open_api_v3))
        .route("/openapi/v3/{*path}", any(open_api_v3))
        .route("/openid/v1/jwks", only_get(token_keys))
        .route("/.well-known/openid-configuration", only_get(token_issuer))
        .route("/metrics", any(metrics_page))
        .fallback(unknown);
    for endpoint in ["/healthz", "/livez", "/readyz"] {
        routes = routes
            .route(endpoint, any(health))
            .route(&format!("{endpoint}/{{*check}}"), any(health));
    }
    routes
});

/// A document that is read alone: other methods are answered 405, HEAD too.
fn only_get<H: Handler<T, ()>, T: 'static>(handler: H) -> MethodRouter<(), Infallible> {
    get(handler).head(not_allowed).fallback(not_allowed)
}

/// The server of a request, and what was read off the request before it was routed.
#[derive(Clone, Debug)]
struct Asked {
    server: Arc<Endpoints>,
    scheme: Arc<Scheme>,
    query: Query,
    accept: Option<String>,
    wants_pretty: bool,
    /// The host of an absolute URI, else that of the header.
    host: Option<String>,
}

/// A failure, which takes its form where those of resources do.
#[derive(Clone, Debug)]
struct Refused(Status);

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self(status)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::default();
        response.extensions_mut().insert(self);
        response
    }
}

/// The answer of a handler.
type Answer = Result<Response<Body>, Refused>;

/// Answers a path that names no resource.
pub(crate) async fn answer(
    server: &Arc<Endpoints>,
    scheme: Arc<Scheme>,
    call: &Call,
) -> Result<Response<Body>, Status> {
    let path = without_slashes(call.parts.uri.path());
    let Ok(uri) = Uri::try_from(path) else {
        return Ok(encode::not_found_text());
    };
    let authority = call.parts.uri.authority().map(http::uri::Authority::as_str);
    let asked = Asked {
        server: Arc::clone(server),
        scheme,
        query: call.query.clone(),
        accept: call.accept(),
        wants_pretty: call.wants_pretty(),
        host: authority.or(call.header(&header::HOST)).map(str::to_owned),
    };
    let mut request = Request::new(Body::empty());
    *request.method_mut() = call.parts.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = call.parts.headers.clone();
    request.extensions_mut().insert(asked);
    let mut response = match ROUTES.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    // The router states the length of bodies, which is for the connection to state.
    response.headers_mut().remove(header::CONTENT_LENGTH);
    match response.extensions_mut().remove::<Refused>() {
        Some(Refused(status)) => Err(status),
        None => Ok(response),
    }
}

/// Slashes at the end mean nothing to documents of discovery, one means nothing to few others.
fn without_slashes(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    match path {
        "" | "/" => "/",
        "/api/" | "/apis/" | "/version/" | "/openid/v1/jwks/" | "/.well-known/openid-configuration/" => trimmed,
        _ if path.starts_with("/api/") || path.starts_with("/apis/") => match trimmed {
            // Below `/apis` there is something, or nothing.
            "/api" | "/apis" => "//",
            _ => trimmed,
        },
        _ => path,
    }
}

async fn not_allowed() -> Refused {
    Refused(Status::method_not_allowed())
}

/// An unknown path below a built-in group is a Status, any other plain text (rule A19).
async fn unknown(Extension(asked): Extension<Asked>, uri: Uri) -> Answer {
    let group = match uri.path().strip_prefix("/apis/") {
        Some(rest) => rest.split('/').next().unwrap_or_default(),
        None if uri.path().starts_with("/api/") => "",
        None => return Ok(encode::not_found_text()),
    };
    let mut rows = asked.scheme.rows();
    if rows.any(|row| row.info.group == group && !row.is_custom()) {
        return Err(Refused(Status::unknown_path()));
    }
    Ok(encode::not_found_text())
}

/// A document of discovery.
struct Document {
    value: Value,
    served: Served,
    /// Set where there is an aggregated form: `true` for the core group's.
    aggregated: Option<bool>,
}

impl Document {
    fn new(value: Value) -> Self {
        Self {
            value,
            served: Served::BuiltIn,
            aggregated: None,
        }
    }
}

impl Asked {
    fn rows(&self) -> Vec<&ResourceInfo> {
        self.scheme.rows().map(|row| &row.info).collect()
    }

    /// Answers a document in the form that the client wants.
    fn show(&self, document: Document, headers: &HeaderMap) -> Answer {
        let Document { value, served, .. } = document;
        let form = negotiation::discovery(self.accept.as_deref(), served, document.aggregated.is_some())?;
        let bytes: Bytes = match form {
            Discovery::Aggregated => {
                let is_core = document.aggregated == Some(true);
                return Ok(aggregated_document(headers, &self.rows(), is_core));
            }
            Discovery::Plain(Encoding::Yaml) => yaml::to_string(&value).into(),
            Discovery::Plain(Encoding::Protobuf) => match discovery::protobuf::encode(&value) {
                Some(bytes) => bytes.into(),
                None => return Err(negotiation::no_protobuf().into()),
            },
            Discovery::Plain(Encoding::Json) if self.wants_pretty => indented(&value),
            Discovery::Plain(Encoding::Json) => line(&value),
        };
        Ok(encode::respond_whole(200, form.content_type(), bytes))
    }
}

/// `/`, whatever the client accepts.
async fn paths(Extension(asked): Extension<Asked>) -> Response<Body> {
    encode::respond_whole(200, JSON, indented(&discovery::paths(&asked.rows())))
}

/// `/version`, of which the router alone looks at `Accept`.
async fn version(Extension(asked): Extension<Asked>) -> Answer {
    negotiation::check_document(asked.accept.as_deref(), JSON)?;
    let version = discovery::version(asked.scheme.version);
    Ok(encode::respond_whole(200, JSON, indented(&version)))
}

/// `/api`
async fn core_versions(Extension(asked): Extension<Asked>, headers: HeaderMap) -> Answer {
    let document = Document {
        aggregated: Some(true),
        ..Document::new(discovery::core_versions(SERVER_ADDRESS))
    };
    asked.show(document, &headers)
}

/// `/apis`
async fn groups(Extension(asked): Extension<Asked>, headers: HeaderMap) -> Answer {
    let document = Document {
        aggregated: Some(false),
        ..Document::new(discovery::group_list(&asked.rows()))
    };
    asked.show(document, &headers)
}

/// `/apis/G`, `/api/v1` and `/apis/G/V`; one that is not served is unknown to every method.
async fn group_document(Extension(asked): Extension<Asked>, method: Method, uri: Uri, headers: HeaderMap) -> Answer {
    let rows = asked.rows();
    let (group, value) = match (uri.path().strip_prefix("/api/"), uri.path().strip_prefix("/apis/")) {
        (Some(version), _) => ("", discovery::resource_list(&rows, "", version)),
        (None, path) => match path.unwrap_or_default().split_once('/') {
            None => (
                path.unwrap_or_default(),
                discovery::group(&rows, path.unwrap_or_default()),
            ),
            // The core group is below `/api` alone.
            Some(("", _)) => ("", None),
            Some((group, version)) => (group, discovery::resource_list(&rows, group, version)),
        },
    };
    let Some(value) = value else {
        return unknown(Extension(asked), uri).await;
    };
    // The documents of groups are the aggregator's, which does not look at the method.
    let is_version = uri.path().starts_with("/api/") || uri.path().matches('/').count() > 2;
    if is_version && method != Method::GET {
        return Err(Refused(Status::method_not_allowed()));
    }
    let document = Document {
        served: served(&asked.scheme, group),
        ..Document::new(value)
    };
    asked.show(document, &headers)
}

/// `/metrics`
async fn metrics_page(Extension(asked): Extension<Asked>, method: Method) -> Response<Body> {
    metrics::answer(&asked.server.metrics, &asked.server.registry, &method)
}

/// Returns the negotiation rules of a group.
fn served(scheme: &Scheme, group: &str) -> Served {
    let mut rows = scheme.rows().filter(|row| row.info.group == group).peekable();
    let is_custom = rows.peek().is_some() && rows.all(|row| row.is_custom());
    if is_custom { Served::Custom } else { Served::BuiltIn }
}

/// The aggregated document, which clients keep by its ETag (rule N2).
fn aggregated_document(headers: &HeaderMap, rows: &[&ResourceInfo], core: bool) -> Response<Body> {
    let bytes = line(&discovery::aggregated(rows, core));
    let etag = discovery::etag(&bytes);
    let unchanged = if_none_match(headers) == etag;
    let mut response = if unchanged {
        encode::respond_whole(304, discovery::AGGREGATED, Bytes::new())
    } else {
        encode::respond_whole(200, discovery::AGGREGATED, bytes)
    };
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    response
}

/// A document in many lines.
fn indented(value: &Value) -> Bytes {
    let bytes = serde_json::to_vec_pretty(&Ordered::new(value));
    bytes.unwrap_or_default().into()
}

/// A document in one line, with a line feed.
fn line(value: &Value) -> Bytes {
    let mut bytes = serde_json::to_vec(&Ordered::new(value)).unwrap_or_default();
    bytes.push(b'\n');
    bytes.into()
}

/// `If-None-Match`; empty if it is absent or no text.
fn if_none_match(headers: &HeaderMap) -> &str {
    let value = headers.get(header::IF_NONE_MATCH);
    value.and_then(|it| it.to_str().ok()).unwrap_or_default()
}

/// `/healthz`, `/livez`, `/readyz` and the checks below them.
async fn health(Extension(asked): Extension<Asked>, uri: Uri) -> Response<Body> {
    let verbose = asked.query.get("verbose").is_some();
    let exclude: Vec<String> = asked.query.all("exclude").map(str::to_owned).collect();
    let Some(text) = discovery::health(uri.path(), verbose, &exclude) else {
        return encode::not_found_text();
    };
    let mut response = encode::respond_whole(200, "text/plain; charset=utf-8", text.into());
    response
        .headers_mut()
        .insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// `/openid/v1/jwks`: the public keys that check tokens of ServiceAccounts, as OpenID Connect has them.
async fn token_keys(Extension(asked): Extension<Asked>) -> Answer {
    let Some((keys, _)) = asked.server.registry.access.tokens.key_set() else {
        return Ok(encode::not_found_text());
    };
    negotiation::check_document(asked.accept.as_deref(), KEY_SET)?;
    Ok(cached(KEY_SET, &keys))
}

/// `/.well-known/openid-configuration`: the issuer of tokens, and where its keys are.
async fn token_issuer(Extension(asked): Extension<Asked>) -> Answer {
    let tokens = &asked.server.registry.access.tokens;
    let Some((_, algorithms)) = tokens.key_set() else {
        return Ok(encode::not_found_text());
    };
    negotiation::check_document(asked.accept.as_deref(), JSON)?;
    let base = match &asked.host {
        Some(host) => format!("https://{host}"),
        None => tokens.issuer().trim_end_matches('/').to_owned(),
    };
    let value = json!({
        "issuer": tokens.issuer(), "jwks_uri": format!("{base}/openid/v1/jwks"),
        "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": algorithms,
    });
    Ok(cached("application/json", &value))
}

/// A document that clients may keep for an hour.
fn cached(content_type: &'static str, value: &Value) -> Response<Body> {
    let text = serde_json::to_vec(&Ordered::new(value)).unwrap_or_default();
    let mut response = encode::respond_whole(200, content_type, text.into());
    let cached = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(header::CACHE_CONTROL, cached);
    response
}

/// `/openapi/v2` (rule N6)
async fn open_api_v2(Extension(asked): Extension<Asked>, headers: HeaderMap) -> Response<Body> {
    let accept = asked.accept.as_deref().unwrap_or_default();
    asked.open_api(|documents| documents.v2(accept, if_none_match(&headers)))
}

/// `/openapi/v3` and the documents below it (rule N6).
async fn open_api_v3(Extension(asked): Extension<Asked>, uri: Uri, headers: HeaderMap) -> Response<Body> {
    let below = uri.path().strip_prefix("/openapi/v3").unwrap_or_default();
    asked.open_api(|documents| match below.strip_prefix('/').unwrap_or_default() {
        "" if below.is_empty() => openapi::DocumentAnswer {
            status: 200,
            headers: vec![("content-type", "application/json".to_owned())],
            body: format!("{}\n", documents.index()).into(),
        },
        path => documents.answer(openapi::Asked {
            path,
            hash: asked.query.get("hash").unwrap_or_default(),
            accept: asked.accept.as_deref().unwrap_or_default(),
            if_none_match: if_none_match(&headers),
            now: asked.server.registry.reader.entropy.now(),
        }),
    })
}

impl Asked {
    /// Answers what `answer` finds in the documents of all served resources.
    fn open_api(&self, answer: impl FnOnce(&OpenApi<'_>) -> openapi::DocumentAnswer) -> Response<Body> {
        let builtins = self.scheme.rows().filter(|row| !row.is_custom());
        let builtins: Vec<&ResourceInfo> = builtins.map(|row| &row.info).collect();
        let versions = self.scheme.custom_rows().filter_map(|row| row.custom_version());
        let custom: Vec<CustomSchema<'_>> = versions
            .map(|version| CustomSchema {
                row: &version.row,
                schema: &version.open_api,
            })
            .collect();
        let answer = answer(&OpenApi {
            version: self.scheme.version,
            builtins: &builtins,
            custom: &custom,
        });
        let mut response = encode::respond_whole(answer.status, "text/plain; charset=utf-8", answer.body);
        for (name, value) in answer.headers {
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

#[cfg(test)]
mod tests;
