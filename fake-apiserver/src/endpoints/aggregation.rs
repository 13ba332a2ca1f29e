//! Passes requests on to aggregated API servers, like `proxyHandler` of kube-aggregator, with the user in the headers
//! of a front proxy. Also adds the groups of these servers to this server's discovery documents.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use axum_core::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Limited};

use super::call::{AUDIT_ID, Call};
use super::discovery::remote::{self, RemoteVersion};
use super::{Endpoints, authentication, discovery, encode, filters, passed_on};
use crate::api::json::Value;
use crate::api::request_info::{RequestInfo, ResourcePath};
use crate::api::status::Status;
use crate::api::user::{MASTERS, UserInfo};
use crate::faults::Struck;
use crate::registry::types::remote_server::RemoteServer;

/// The user of this server's own requests to aggregated API servers.
const AGGREGATOR: &str = "system:kube-aggregator";

/// Maximum size of a discovery document of an aggregated API server, in bytes; longer documents are errors.
const DOCUMENT_BYTES_MAX: usize = 32 << 20;

/// Headers that belong to a connection and not to a request (`hopHeaders` of Go's `ReverseProxy`).
const OF_A_CONNECTION: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

// Headers that contain the user of a request. They are removed from requests of clients.
const USER: &str = "x-remote-user";
const UID: &str = "x-remote-uid";
const GROUP: &str = "x-remote-group";
const EXTRA: &str = "x-remote-extra-";

/// Passes requests on to aggregated API servers.
pub(crate) trait Forward: fmt::Debug + Send + Sync {
    /// Returns the response, with a body that is read as it arrives. Errors have the messages of Go's client.
    fn forward<'a>(
        &'a self,
        remote: &'a RemoteServer,
        request: Request<Body>,
    ) -> BoxFuture<'a, Result<Response<Body>, String>>;
}

/// Returns the aggregated API server that serves the group and version of a path.
pub(super) fn server_of(server: &Endpoints, path: &str) -> Option<RemoteServer> {
    let below = path.strip_prefix("/openapi/v3").unwrap_or(path);
    let mut names = below.strip_prefix("/apis/")?.split('/');
    let (group, version) = (names.next()?, names.next()?);
    let reader = &server.registry.reader;
    if group.is_empty() || version.is_empty() || reader.scheme().serves(group, version) {
        return None;
    }
    reader.remote_server(group, version)
}

/// Passes a request on, after applying the faults that match it.
pub(super) async fn answer(
    server: &Arc<Endpoints>,
    call: &mut Call,
    body: Body,
    remote: &RemoteServer,
) -> Result<Response<Body>, Status> {
    if !server.registry.reader.has_route(remote) {
        return Ok(encode::unavailable_text());
    }
    if call.parts.headers.contains_key(header::UPGRADE) {
        return Err(Status::new(
            501,
            "NotImplemented",
            "upgraded connections to aggregated API servers are not supported".to_owned(),
        ));
    }
    call.body = filters::read_body(&call.parts, body).await?;
    call.info = resource_request(call);
    let mut struck = Struck::default();
    let answer = {
        let call = &*call;
        let pass = || async { Ok(pass(server, call, remote).await) };
        match &call.info {
            Some(info) => server.answer_struck(call, info, &mut struck, pass).await,
            None => pass().await,
        }
    };
    call.struck = struck.verdicts;
    answer
}

/// Parses the path into a request for a resource, which may not be served by this server.
fn resource_request(call: &Call) -> Option<RequestInfo> {
    let path = percent_encoding::percent_decode_str(call.parts.uri.path()).decode_utf8_lossy();
    let path = ResourcePath::parse(&path)?;
    Some(RequestInfo {
        verb: authentication::verb(call, &path),
        group: path.group.to_owned().into(),
        version: path.version.to_owned().into(),
        resource: path.resource.to_owned().into(),
        subresource: path.subresource.to_owned(),
        namespace: path.namespace.to_owned(),
        name: path.name.to_owned(),
    })
}

async fn pass(server: &Endpoints, call: &Call, remote: &RemoteServer) -> Response<Body> {
    let mut request = Request::new(Body::from(call.body.clone()));
    *request.method_mut() = call.parts.method.clone();
    *request.uri_mut() = path_of(&call.parts.uri);
    *request.headers_mut() = headers_of(call);
    match server.backends.forward(remote, request).await {
        Ok(mut answer) => {
            for name in OF_A_CONNECTION {
                answer.headers_mut().remove(name);
            }
            server.registry.remote_called(&remote.name, Ok(()));
            if answer.status().is_redirection() && answer.headers().contains_key(header::LOCATION) {
                let text = "the backend attempted to redirect this request, which is not permitted";
                return encode::respond_whole(502, "text/plain; charset=utf-8", text.into());
            }
            passed_on::kept(call, answer).await
        }
        Err(why) => {
            server
                .registry
                .remote_called(&remote.name, Err(failed_check(remote, &why)));
            encode::service_text(&format!("error trying to reach service: {why}"))
        }
    }
}

/// Returns path and query of a URI, without its authority.
fn path_of(uri: &http::Uri) -> http::Uri {
    let path = uri.path_and_query().map_or("/", |it| it.as_str());
    path.parse().unwrap_or_default()
}

/// Returns the headers of a request that is passed on. The client's credentials are removed.
fn headers_of(call: &Call) -> HeaderMap {
    let parts = &call.parts;
    let mut headers = parts.headers.clone();
    for name in OF_A_CONNECTION.iter().chain(&[header::AUTHORIZATION]) {
        headers.remove(name);
    }
    let is_of_a_user = |name: &HeaderName| {
        let name = name.as_str();
        [USER, UID, GROUP].contains(&name) || name.starts_with(EXTRA) || name.starts_with("impersonate-")
    };
    let of_users: Vec<HeaderName> = headers.keys().filter(|it| is_of_a_user(it)).cloned().collect();
    for name in of_users {
        headers.remove(name);
    }
    headers.insert(AUDIT_ID, call.audit_id.clone());
    let mut forwarded = |name: &'static str, value: &str| insert(&mut headers, name, value);
    forwarded("x-forwarded-uri", parts.uri.path());
    let host = parts.uri.authority().map(http::uri::Authority::as_str);
    if let Some(host) = host.or(call.header(&header::HOST)) {
        forwarded("x-forwarded-host", host);
    }
    forwarded("x-forwarded-proto", "https");
    name_user(&mut headers, &call.user);
    headers
}

/// Adds the headers of a front proxy (`SetAuthProxyHeaders` of client-go).
fn name_user(headers: &mut HeaderMap, user: &UserInfo) {
    insert(headers, USER, &user.name);
    if !user.uid.is_empty() {
        insert(headers, UID, &user.uid);
    }
    for group in &user.groups {
        append(headers, GROUP, group);
    }
    for (key, values) in &user.extra {
        let name = format!("{EXTRA}{}", escaped(key));
        for value in values {
            append(headers, &name, value);
        }
    }
}

/// Escapes the key of an extra field for a header name: bytes that are not allowed there are percent-encoded.
fn escaped(key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    let mut out = String::with_capacity(key.len());
    for byte in key.bytes() {
        match is_plain(byte) {
            true => out.push(char::from(byte)),
            // Writing into a String cannot fail.
            false => _ = write!(out, "%{byte:02X}"),
        }
    }
    out
}

/// Sets a header; an invalid value is omitted.
fn insert(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Appends a header value; an invalid name or value is omitted.
fn append(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
        headers.append(name, value);
    }
}

/// Returns the message of the condition `Available` after a failed call.
fn failed_check(remote: &RemoteServer, why: &str) -> String {
    let url = url_of(remote);
    format!("failing or missing response from {url}: Get {url:?}: {why}")
}

/// Returns the URL of the discovery document of the group and version.
fn url_of(remote: &RemoteServer) -> String {
    format!("{}/apis/{}/{}", remote.endpoint.url, remote.group, remote.version)
}

/// Requests a document with the aggregator's own user. Errors have the messages of Go's client.
async fn get(server: &Endpoints, remote: &RemoteServer, path: &str, accept: &str) -> Result<Response<Bytes>, String> {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = path.parse().map_err(|_| "invalid URL".to_owned())?;
    let headers = request.headers_mut();
    append(headers, "accept", accept);
    let user = UserInfo {
        name: AGGREGATOR.to_owned(),
        groups: vec![MASTERS.to_owned()],
        ..UserInfo::default()
    };
    name_user(headers, &user);
    let (parts, body) = server.backends.forward(remote, request).await?.into_parts();
    let body = Limited::new(body, DOCUMENT_BYTES_MAX).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    Ok(Response::from_parts(parts, body))
}

impl Endpoints {
    /// Calls an aggregated API server, and updates the condition `Available` of its APIService
    /// (`AvailableConditionController` of kube-aggregator). Returns `false` if the server is unavailable.
    pub(crate) async fn check_remote(&self, name: &str) -> bool {
        let Some((version, group)) = name.split_once('.') else {
            return true;
        };
        let Some(remote) = self.registry.reader.remote_server(group, version) else {
            return true;
        };
        let path = format!("/apis/{group}/{version}");
        let result = match get(self, &remote, &path, "application/json").await {
            Ok(answer) if (200..300).contains(&answer.status().as_u16()) => Ok(()),
            Ok(answer) => {
                let url = url_of(&remote);
                let code = answer.status().as_u16();
                Err(format!(
                    "failing or missing response from {url}: bad status from {url}: {code}"
                ))
            }
            Err(why) => Err(failed_check(&remote, &why)),
        };
        let is_available = result.is_ok();
        self.registry.remote_called(name, result);
        is_available
    }
}

/// Returns the versions that aggregated API servers serve, for a discovery document. Their resources are requested only
/// for the aggregated discovery of groups.
pub(super) async fn versions(server: &Endpoints, call: &Call) -> Vec<RemoteVersion> {
    let path = call.parts.uri.path();
    if path != "/" && !path.starts_with("/apis") {
        return Vec::new();
    }
    let accept = call.accept().unwrap_or_default();
    let has_resources = path.trim_end_matches('/') == "/apis" && accept.contains("as=APIGroupDiscoveryList");
    let mut versions = Vec::new();
    let reader = &server.registry.reader;
    for remote in reader.remote_servers() {
        if reader.scheme().serves(&remote.group, &remote.version) {
            continue;
        }
        let resources = match has_resources && reader.has_route(&remote) {
            true => resources(server, &remote).await,
            false => None,
        };
        versions.push(RemoteVersion {
            group: remote.group,
            version: remote.version,
            group_priority: remote.group_priority,
            version_priority: remote.version_priority,
            resources,
        });
    }
    versions
}

/// Returns the resources of a version in the form of aggregated discovery: from the aggregated document of the server,
/// otherwise from its list of resources.
async fn resources(server: &Endpoints, remote: &RemoteServer) -> Option<Vec<Value>> {
    let (group, version) = (&*remote.group, &*remote.version);
    let json = |answer: Response<Bytes>| -> Option<Value> {
        let is_ok = answer.status().as_u16() == 200;
        serde_json::from_slice(answer.body()).ok().filter(|_| is_ok)
    };
    let accept = format!("{},application/json", discovery::AGGREGATED);
    let whole = get(server, remote, "/apis", &accept).await.ok().and_then(json);
    if let Some(found) = whole.and_then(|it| remote::in_aggregated(&it, group, version)) {
        return Some(found);
    }
    let path = format!("/apis/{group}/{version}");
    let list = get(server, remote, &path, "application/json")
        .await
        .ok()
        .and_then(json)?;
    Some(remote::from_list(&list, group, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("scopes", "scopes")]
    #[case("authentication.kubernetes.io/pod-name", "authentication.kubernetes.io%2Fpod-name")]
    #[case("a%b ü", "a%25b%20%C3%BC")]
    fn extra_keys_are_escaped_in_proxy_headers(#[case] key: &str, #[case] name: &str) {
        assert_eq!(escaped(key), name);
    }
}
