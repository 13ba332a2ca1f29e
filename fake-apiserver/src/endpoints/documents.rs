//! Documents that do not depend on objects: discovery, OpenAPI, version, health and the list of paths. This module does
//! not handle requests for resources.

#[cfg_attr(not(feature = "serve"), path = "documents/no_open_api.rs")]
mod open_api;
mod ordered;

use std::sync::Arc;

use axum_core::body::Body;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, Response};

use super::call::Call;
use super::discovery::remote::RemoteVersion;
use super::negotiation::{self, Discovery, Encoding, Served};
use super::{Endpoints, discovery, encode, metrics};
use crate::api::json::{Value, json};
use crate::api::options::Query;
use crate::api::resource::ResourceInfo;
use crate::api::status::Status;
use crate::api::yaml;
use crate::registry::scheme::Scheme;
use ordered::Ordered;

/// The media type of documents that have a single encoding.
const JSON: &str = "application/json";

/// The media type of a set of keys.
const KEY_SET: &str = "application/jwk-set+json";

/// The address that `/api` reports; clients do not use it.
const SERVER_ADDRESS: &str = "127.0.0.1:443";

/// A request for a document, with the data that all documents use.
#[derive(Debug)]
struct Asked<'a> {
    server: &'a Arc<Endpoints>,
    scheme: Arc<Scheme>,
    /// The path, without ignored trailing slashes.
    path: &'a str,
    method: &'a Method,
    headers: &'a HeaderMap,
    query: &'a Query,
    accept: Option<String>,
    wants_pretty: bool,
    /// The host of an absolute URI, otherwise the `Host` header.
    host: Option<String>,
    /// Versions served by aggregated API servers.
    remote: &'a [RemoteVersion],
}

/// Response to a request for a document.
type Answer = Result<Response<Body>, Status>;

/// Handles a request whose path does not belong to a resource.
pub(crate) fn answer(server: &Arc<Endpoints>, scheme: Arc<Scheme>, call: &Call, remote: &[RemoteVersion]) -> Answer {
    let authority = call.parts.uri.authority().map(http::uri::Authority::as_str);
    let asked = Asked {
        server,
        scheme,
        path: without_slashes(call.parts.uri.path()),
        method: &call.parts.method,
        headers: &call.parts.headers,
        query: &call.query,
        accept: call.accept().map(str::to_owned),
        wants_pretty: call.wants_pretty(),
        host: authority.or(call.header(&header::HOST)).map(str::to_owned),
        remote,
    };
    asked.answer()
}

/// Removes trailing slashes: discovery documents ignore any number of them, some other documents ignore one.
fn without_slashes(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    match path {
        "" | "/" => "/",
        "/api/" | "/apis/" | "/version/" | "/openid/v1/jwks/" | "/.well-known/openid-configuration/" => trimmed,
        _ if path.starts_with("/api/") || path.starts_with("/apis/") => match trimmed {
            // `/apis//` is not a document.
            "/api" | "/apis" => "//",
            _ => trimmed,
        },
        _ => path,
    }
}

/// A discovery document.
struct Document {
    value: Value,
    served: Served,
    /// Set if the document has an aggregated form: `true` for the core group, `false` for all other groups.
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

impl Asked<'_> {
    fn answer(&self) -> Answer {
        let below = |start: &str| self.path.strip_prefix(start).filter(|it| !it.is_empty());
        match self.path {
            "/" => Ok(self.paths()),
            "/version" => self.only_get(Self::version),
            "/api" => self.only_get(Self::core_versions),
            "/apis" => self.groups(),
            "/openapi/v2" => self.open_api_v2(),
            "/openapi/v3" => self.open_api_v3(""),
            "/openid/v1/jwks" => self.only_get(Self::token_keys),
            "/.well-known/openid-configuration" => self.only_get(Self::token_issuer),
            "/metrics" => Ok(metrics::answer(
                &self.server.metrics,
                &self.server.registry,
                self.method,
            )),
            "/healthz" | "/livez" | "/readyz" => Ok(self.health()),
            _ if ["/healthz/", "/livez/", "/readyz/"]
                .into_iter()
                .any(|it| below(it).is_some()) =>
            {
                Ok(self.health())
            }
            path => {
                if let Some(document) = below("/openapi/v3/") {
                    return self.open_api_v3(document);
                }
                let names: Vec<&str> = path.split('/').skip(1).collect();
                match names.as_slice() {
                    ["api", version] if !version.is_empty() => self.group_document("", Some(version)),
                    ["apis", group] if !group.is_empty() => self.group_document(group, None),
                    ["apis", group, version] if !group.is_empty() && !version.is_empty() => {
                        self.group_document(group, Some(version))
                    }
                    _ => self.unknown(),
                }
            }
        }
    }

    /// Returns the document for GET, and 405 for all other methods, including HEAD.
    fn only_get(&self, document: fn(&Self) -> Answer) -> Answer {
        match *self.method == Method::GET {
            true => document(self),
            false => Err(Status::method_not_allowed()),
        }
    }

    /// Returns the 404 for an unknown path: a Status below a built-in group, otherwise plain text (rule A19).
    fn unknown(&self) -> Answer {
        let group = match self.path.strip_prefix("/apis/") {
            Some(rest) => rest.split('/').next().unwrap_or_default(),
            None if self.path.starts_with("/api/") => "",
            None => return Ok(encode::not_found_text()),
        };
        let mut rows = self.scheme.rows();
        if rows.any(|row| row.info.group == group && !row.is_custom()) {
            return Err(Status::unknown_path());
        }
        Ok(encode::not_found_text())
    }

    fn rows(&self) -> Vec<&ResourceInfo> {
        self.scheme.rows().map(|row| &row.info).collect()
    }

    /// Returns a document in the format that the client requests.
    fn show(&self, document: Document) -> Answer {
        let Document { value, served, .. } = document;
        let form = negotiation::discovery(self.accept.as_deref(), served, document.aggregated.is_some())?;
        let bytes: Bytes = match form {
            Discovery::Aggregated => {
                let is_core = document.aggregated == Some(true);
                return Ok(aggregated_document(self.headers, &self.rows(), self.remote, is_core));
            }
            Discovery::Plain(Encoding::Yaml) => yaml::to_string(&value).into(),
            Discovery::Plain(Encoding::Protobuf) => match discovery::protobuf::encode(&value) {
                Some(bytes) => bytes.into(),
                None => return Err(negotiation::no_protobuf()),
            },
            Discovery::Plain(Encoding::Json) if self.wants_pretty => indented(&value),
            Discovery::Plain(Encoding::Json) => line(&value),
        };
        Ok(encode::respond_whole(200, form.content_type(), bytes))
    }

    /// Handles `/`, regardless of the `Accept` header.
    fn paths(&self) -> Response<Body> {
        encode::respond_whole(200, JSON, indented(&discovery::paths(&self.rows(), self.remote)))
    }

    /// Handles `/version`.
    fn version(&self) -> Answer {
        negotiation::check_document(self.accept.as_deref(), JSON)?;
        let version = discovery::version(self.scheme.version);
        Ok(encode::respond_whole(200, JSON, indented(&version)))
    }

    /// Handles `/api`.
    fn core_versions(&self) -> Answer {
        self.show(Document {
            aggregated: Some(true),
            ..Document::new(discovery::core_versions(SERVER_ADDRESS))
        })
    }

    /// Handles `/apis`.
    fn groups(&self) -> Answer {
        self.show(Document {
            aggregated: Some(false),
            ..Document::new(discovery::group_list(&self.rows(), self.remote))
        })
    }

    /// Handles `/apis/G`, `/api/v1` and `/apis/G/V`. Groups and versions that are not served return 404 for every
    /// method.
    fn group_document(&self, group: &str, version: Option<&str>) -> Answer {
        let rows = self.rows();
        let value = match version {
            Some(version) => discovery::resource_list(&rows, group, version),
            None => discovery::group(&rows, self.remote, group),
        };
        let Some(value) = value else {
            return self.unknown();
        };
        // In Kubernetes, kube-aggregator serves the documents of groups, and ignores the method.
        if version.is_some() && *self.method != Method::GET {
            return Err(Status::method_not_allowed());
        }
        self.show(Document {
            served: served(&self.scheme, group),
            ..Document::new(value)
        })
    }
}

/// Returns the type of handler that serves the resources of a group, for negotiation.
fn served(scheme: &Scheme, group: &str) -> Served {
    let mut rows = scheme.rows().filter(|row| row.info.group == group).peekable();
    let is_custom = rows.peek().is_some() && rows.all(|row| row.is_custom());
    if is_custom { Served::Custom } else { Served::BuiltIn }
}

/// Returns an aggregated document, which clients cache by its ETag (rule N2).
fn aggregated_document(
    headers: &HeaderMap,
    rows: &[&ResourceInfo],
    remote: &[RemoteVersion],
    core: bool,
) -> Response<Body> {
    let bytes = line(&discovery::aggregated(rows, remote, core));
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

/// Formats a document with indentation.
fn indented(value: &Value) -> Bytes {
    let bytes = serde_json::to_vec_pretty(&Ordered::new(value));
    bytes.unwrap_or_default().into()
}

/// Formats a document as one line with a line feed.
fn line(value: &Value) -> Bytes {
    let mut bytes = serde_json::to_vec(&Ordered::new(value)).unwrap_or_default();
    bytes.push(b'\n');
    bytes.into()
}

/// Returns `If-None-Match`; empty if it is absent or not valid text.
fn if_none_match(headers: &HeaderMap) -> &str {
    let value = headers.get(header::IF_NONE_MATCH);
    value.and_then(|it| it.to_str().ok()).unwrap_or_default()
}

impl Asked<'_> {
    /// Handles `/healthz`, `/livez`, `/readyz` and the checks below them.
    fn health(&self) -> Response<Body> {
        let verbose = self.query.get("verbose").is_some();
        let exclude: Vec<String> = self.query.all("exclude").map(str::to_owned).collect();
        let Some(text) = discovery::health(self.path, verbose, &exclude) else {
            return encode::not_found_text();
        };
        let mut response = encode::respond_whole(200, "text/plain; charset=utf-8", text.into());
        response
            .headers_mut()
            .insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        response
    }

    /// Handles `/openid/v1/jwks`: the public keys that verify tokens of ServiceAccounts, as a JSON Web Key Set.
    fn token_keys(&self) -> Answer {
        let Some((keys, _)) = self.server.registry.access.tokens.key_set() else {
            return Ok(encode::not_found_text());
        };
        negotiation::check_document(self.accept.as_deref(), KEY_SET)?;
        Ok(cached(KEY_SET, &keys))
    }

    /// Handles `/.well-known/openid-configuration`: the issuer of tokens, and the URL of its keys.
    fn token_issuer(&self) -> Answer {
        let tokens = &self.server.registry.access.tokens;
        let Some((_, algorithms)) = tokens.key_set() else {
            return Ok(encode::not_found_text());
        };
        negotiation::check_document(self.accept.as_deref(), JSON)?;
        let base = match &self.host {
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
}

/// Returns a document that clients may cache for an hour.
fn cached(content_type: &'static str, value: &Value) -> Response<Body> {
    let text = serde_json::to_vec(&Ordered::new(value)).unwrap_or_default();
    let mut response = encode::respond_whole(200, content_type, text.into());
    let cached = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(header::CACHE_CONTROL, cached);
    response
}

#[cfg(test)]
mod tests;
