//! Documents served without reading objects: discovery, OpenAPI, version, health and the list of paths.

use axum::body::Body;
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Response};
use serde_json::{Value, json};

use super::filters::Call;
use super::metrics::{self, Metrics};
use super::negotiation::{self, Discovery, Encoding, Served};
use super::openapi::{Asked, CustomSchema, OpenApi};
use super::{discovery, discovery_protobuf, encode, yaml};
use crate::api::resource::ResourceInfo;
use crate::api::status::Status;
use crate::registry::Registry;
use crate::registry::scheme::Scheme;

/// The address that `/api` reports; clients do not use it.
const SERVER_ADDRESS: &str = "127.0.0.1:443";

/// Answers a path that names no resource.
pub(crate) fn answer(
    registry: &Registry,
    scheme: &Scheme,
    counted: &Metrics,
    call: &Call,
) -> Result<Response<Body>, Status> {
    let path = call.parts.uri.path();
    let path = path.strip_suffix('/').unwrap_or(path);
    if path == "/metrics" {
        return Ok(metrics::answer(counted, registry, &call.parts.method));
    }
    if let Some(answer) = health(path, call) {
        return Ok(answer);
    }
    if let "/openid/v1/jwks" | "/.well-known/openid-configuration" = path {
        return Ok(key_discovery(registry, call, path));
    }
    let is_get = call.parts.method == Method::GET;
    let rows: Vec<&ResourceInfo> = scheme.rows().map(|row| &row.info).collect();
    if path == "/openapi/v2" || path.starts_with("/openapi/v3") {
        return Ok(openapi(registry, scheme, call, path));
    }
    let (value, aggregated) = match path {
        "" => (Some(discovery::paths(&rows)), false),
        "/version" => (Some(discovery::version(scheme.version)), false),
        "/api" => (Some(discovery::core_versions(SERVER_ADDRESS)), true),
        "/apis" => (Some(discovery::group_list(&rows)), true),
        _ => (group_document(&rows, path), false),
    };
    let Some(value) = value else {
        return not_found(scheme, path);
    };
    if !is_get {
        return Err(Status::method_not_allowed());
    }
    let form = negotiation::discovery(call.accept().as_deref(), served(scheme, path), aggregated)?;
    let bytes: Bytes = match form {
        Discovery::Aggregated => return Ok(aggregated_document(call, &rows, path == "/api")),
        Discovery::Plain(Encoding::Yaml) => yaml::to_string(&value).into(),
        Discovery::Plain(Encoding::Protobuf) => match discovery_protobuf::encode(&value) {
            Some(bytes) => bytes.into(),
            None => return Err(negotiation::no_protobuf()),
        },
        Discovery::Plain(Encoding::Json) if path == "/version" || path.is_empty() || call.wants_pretty() => {
            serde_json::to_vec_pretty(&value).unwrap_or_default().into()
        }
        Discovery::Plain(Encoding::Json) => format!("{value}\n").into(),
    };
    Ok(encode::respond_whole(200, form.content_type(), bytes))
}

/// `/apis/G`, `/api/v1` and `/apis/G/V`.
fn group_document(rows: &[&ResourceInfo], path: &str) -> Option<Value> {
    if let Some(version) = path.strip_prefix("/api/") {
        return discovery::resource_list(rows, "", version);
    }
    match path.strip_prefix("/apis/")?.split_once('/') {
        None => discovery::group(rows, path.strip_prefix("/apis/")?),
        Some((group, version)) => discovery::resource_list(rows, group, version),
    }
}

/// An unknown path below a built-in group is a Status, any other plain text (rule A19).
fn not_found(scheme: &Scheme, path: &str) -> Result<Response<Body>, Status> {
    let group = match path.strip_prefix("/apis/") {
        Some(rest) => rest.split('/').next().unwrap_or_default(),
        None if path.starts_with("/api/") => "",
        None => return Ok(encode::not_found_text()),
    };
    if scheme.rows().any(|row| row.info.group == group && !row.is_custom()) {
        return Err(Status::unknown_path());
    }
    Ok(encode::not_found_text())
}

/// Returns the negotiation rules of a discovery path's group.
fn served(scheme: &Scheme, path: &str) -> Served {
    let group = path.strip_prefix("/apis/").and_then(|rest| rest.split('/').next());
    let is_custom = group.is_some_and(|group| {
        let mut rows = scheme.rows().filter(|row| row.info.group == group).peekable();
        rows.peek().is_some() && rows.all(|row| row.is_custom())
    });
    if is_custom { Served::Custom } else { Served::BuiltIn }
}

/// The aggregated document, which clients keep by its ETag (rule N2).
fn aggregated_document(call: &Call, rows: &[&ResourceInfo], core: bool) -> Response<Body> {
    let bytes: Bytes = format!("{}\n", discovery::aggregated(rows, core)).into();
    let etag = discovery::etag(&bytes);
    let unchanged = call.header(&header::IF_NONE_MATCH).is_some_and(|it| it == etag);
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

/// `/healthz`, `/livez`, `/readyz` and the checks below them.
fn health(path: &str, call: &Call) -> Option<Response<Body>> {
    let endpoint = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    if !matches!(endpoint, "healthz" | "livez" | "readyz") {
        return None;
    }
    let verbose = call.query.get("verbose").is_some();
    let exclude: Vec<String> = call.query.all("exclude").map(str::to_owned).collect();
    let Some(text) = discovery::health(path, verbose, &exclude) else {
        return Some(encode::not_found_text());
    };
    let mut response = encode::respond_whole(200, "text/plain; charset=utf-8", text.into());
    response
        .headers_mut()
        .insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    Some(response)
}

/// Serves the documents for checking tokens of ServiceAccounts: the issuer and the public keys, as OpenID Connect has
/// them.
fn key_discovery(registry: &Registry, call: &Call, path: &str) -> Response<Body> {
    let tokens = &registry.access.tokens;
    let Some((keys, algorithms)) = tokens.key_set() else {
        return encode::not_found_text();
    };
    let (value, kind) = match path {
        "/openid/v1/jwks" => (keys, "application/jwk-set+json"),
        _ => {
            let host = call.parts.uri.authority().map(http::uri::Authority::as_str);
            let base = match host.or(call.header(&header::HOST)) {
                Some(host) => format!("https://{host}"),
                None => tokens.issuer().trim_end_matches('/').to_owned(),
            };
            let value = json!({
                "issuer": tokens.issuer(), "jwks_uri": format!("{base}/openid/v1/jwks"),
                "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": algorithms,
            });
            (value, "application/json")
        }
    };
    let mut response = encode::respond_whole(200, kind, value.to_string().into());
    let cached = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(header::CACHE_CONTROL, cached);
    response
}

/// `/openapi/v2`, `/openapi/v3` and the documents below it (rule N6).
fn openapi(registry: &Registry, scheme: &Scheme, call: &Call, path: &str) -> Response<Body> {
    let builtins: Vec<&ResourceInfo> = scheme
        .rows()
        .filter(|row| !row.is_custom())
        .map(|row| &row.info)
        .collect();
    let versions = scheme.custom_rows().filter_map(|row| row.custom_version());
    let custom: Vec<CustomSchema<'_>> = versions
        .map(|version| CustomSchema {
            row: &version.row,
            schema: &version.open_api,
        })
        .collect();
    let documents = OpenApi {
        version: scheme.version,
        builtins: &builtins,
        custom: &custom,
    };
    let accept = call.accept().unwrap_or_default();
    let if_none_match = call.header(&header::IF_NONE_MATCH).unwrap_or_default();
    let answer = match path.strip_prefix("/openapi/v3").map(|it| it.trim_start_matches('/')) {
        None => documents.v2(&accept, if_none_match),
        Some("") => {
            let bytes = format!("{}\n", documents.index());
            return encode::respond_whole(200, "application/json", bytes.into());
        }
        Some(path) => documents.answer(Asked {
            path,
            hash: call.query.get("hash").unwrap_or_default(),
            accept: &accept,
            if_none_match,
            now: registry.reader.entropy.now(),
        }),
    };
    let mut response = encode::respond_whole(answer.status, "text/plain; charset=utf-8", answer.body);
    for (name, value) in answer.headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}
