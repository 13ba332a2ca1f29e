//! `Routes`: the service or address of each host.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum_core::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, Uri, header};
use tower::{Service, ServiceExt as _};

use super::reply::reply;
#[cfg(feature = "serve")]
use super::trust::{Identity, Trust};
use crate::registry::types::endpoint::Endpoint;
use crate::registry::webhook::transport::{Reply, Transport};

/// The default port of URLs.
const HTTPS_PORT: u16 = 443;

/// Maximum number of redirects, as in Go's client.
const REDIRECTS_MAX: usize = 10;

/// Key of the address that applies to all Services of webhooks without their own route.
const ANY_SERVICE: &str = "*";

/// Function that may delay or refuse a call. It receives the host and the path of the call, and the call itself as a
/// future, which it may await. If it returns an error, the call fails with this message.
pub(crate) type Gate =
    dyn for<'a> Fn(&'a str, &'a str, BoxFuture<'a, ()>) -> BoxFuture<'a, Result<(), String>> + Send + Sync;

type Answering = dyn Fn(Request<Body>) -> BoxFuture<'static, Response<Body>> + Send + Sync;

/// A service in this process that handles a host.
#[derive(Clone)]
pub(crate) struct Handler(Arc<Answering>);

impl Handler {
    /// Creates a handler from a tower service, such as an axum router.
    pub(crate) fn new<S>(service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        Self(Arc::new(move |request| {
            let service = service.clone();
            Box::pin(async move {
                match service.oneshot(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            })
        }))
    }
}

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handler")
    }
}

/// The services and addresses to which calls of webhooks and aggregated API servers are routed, by host. Hosts without
/// a route are resolved with DNS, except hosts of services, which cannot be called. Clones share the routes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes(Arc<Mutex<Tables>>);

#[derive(Clone, Default)]
struct Tables {
    /// Services in this process, by host.
    handlers: BTreeMap<String, Handler>,
    /// Hosts with their addresses, which take precedence over DNS.
    addresses: BTreeMap<String, SocketAddr>,
    /// The server's own services; routes of the test take precedence. [`Routes::apart`] does not copy them.
    own: BTreeMap<String, Handler>,
    /// The certificate with which this server authenticates to aggregated API servers.
    #[cfg(feature = "serve")]
    identity: Option<Arc<Identity>>,
    /// Function that may delay or refuse calls of webhooks at configured addresses. The testkit uses it to explore
    /// processes.
    gate: Option<Arc<Gate>>,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Tables");
        shown
            .field("handlers", &self.handlers)
            .field("addresses", &self.addresses);
        shown.finish_non_exhaustive()
    }
}

/// The destination of calls to a host.
enum Route {
    /// A service in this process.
    Handler(Handler),
    /// The address to which calls of the host are sent.
    Address(SocketAddr),
}

impl Tables {
    /// Returns the route of a host. A route of the test takes precedence over a service of the server itself.
    fn route(&self, uri: &Uri) -> Option<Route> {
        let handler = find(&self.handlers, uri).cloned().map(Route::Handler);
        let address = || find(&self.addresses, uri).copied().map(Route::Address);
        let own = || find(&self.own, uri).cloned().map(Route::Handler);
        handler.or_else(address).or_else(own)
    }
}

/// Returns the entry of a host, with or without its port.
fn find<'a, T>(map: &'a BTreeMap<String, T>, uri: &Uri) -> Option<&'a T> {
    map.get(&authority(uri))
        .or_else(|| map.get(uri.host().unwrap_or_default()))
}

/// Returns the key of a host in the routes: without the default port.
fn authority(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    match uri.port_u16() {
        None | Some(HTTPS_PORT) => host.to_owned(),
        Some(port) => format!("{host}:{port}"),
    }
}

impl Routes {
    /// Returns an independent copy of the routes, without the server's own services.
    pub(crate) fn apart(&self) -> Self {
        let tables = Tables {
            own: BTreeMap::new(),
            ..self.tables().clone()
        };
        Self(Arc::new(Mutex::new(tables)))
    }

    /// Routes calls to `host` to a service in this process.
    pub(crate) fn answer(&self, host: &str, handler: Handler) {
        let host = host.trim_end_matches(":443").to_owned();
        self.tables().handlers.insert(host, handler);
    }

    /// Routes calls to `host` to a service of the server itself, unless the test has set a route.
    pub(crate) fn answer_itself(&self, host: &str, handler: Handler) {
        self.tables().own.insert(host.to_owned(), handler);
    }

    /// Sets the function that may delay or refuse calls of webhooks at configured addresses.
    pub(crate) fn gate(&self, gate: Arc<Gate>) {
        self.tables().gate = Some(gate);
    }

    /// Sets the address of `host`, which may be [`ANY_SERVICE`].
    pub(crate) fn resolve(&self, host: &str, address: SocketAddr) {
        let host = host.trim_end_matches(":443").to_owned();
        self.tables().addresses.insert(host, address);
    }

    /// Sets the certificate with which this server authenticates to aggregated API servers.
    #[cfg(feature = "tls")]
    pub(crate) fn identify(&self, certificate: Vec<u8>, key: Vec<u8>) {
        self.tables().identity = Some(Arc::new(Identity { certificate, key }));
    }

    /// Returns `true` if calls to an endpoint's host are made to a configured address.
    pub(crate) fn is_at_an_address(&self, endpoint: &Endpoint) -> bool {
        matches!(self.route_of(endpoint), Some(Route::Address(_)))
    }

    fn route_of(&self, endpoint: &Endpoint) -> Option<Route> {
        let uri: Uri = endpoint.url.parse().ok()?;
        self.tables().route(&uri)
    }

    /// Passes a request on to the host of an endpoint, which must have a route. The response body is read as it
    /// arrives. Errors have the messages of Go's client.
    pub(crate) async fn forward(
        &self,
        endpoint: &Endpoint,
        skips_checks: bool,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, String> {
        let uri: Uri = endpoint.url.parse().map_err(|_| "invalid URL".to_owned())?;
        if let Ok(host) = HeaderValue::from_str(&authority(&uri)) {
            request.headers_mut().insert(header::HOST, host);
        }
        let route = self.tables().route(&uri);
        let address = match route {
            Some(Route::Handler(handler)) => return Ok((handler.0)(request).await),
            Some(Route::Address(address)) => address,
            None => return Err("no address is set for the service".to_owned()),
        };
        #[cfg(feature = "serve")]
        {
            let place = super::http::Place {
                host: uri.host().unwrap_or_default(),
                port: uri.port_u16().unwrap_or(HTTPS_PORT),
                address: Some(address),
            };
            let identity = self.tables().identity.clone();
            let trust = Trust {
                ca_bundle: &endpoint.ca_bundle,
                skips_checks,
                identity: identity.as_deref(),
            };
            super::http::forward(&place, &trust, request).await
        }
        #[cfg(not(feature = "serve"))]
        {
            let _ = (address, skips_checks);
            Err(
                "calling API servers over the network requires the features serve and tls of the crate fake-apiserver"
                    .to_owned(),
            )
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts a body, and follows redirects.
    async fn call(&self, endpoint: &Endpoint, url: &str, body: Bytes) -> Result<Reply, String> {
        let mut uri: Uri = url.parse().map_err(|_| "invalid URL".to_owned())?;
        let mut sent = Some(body);
        for _ in 0..REDIRECTS_MAX {
            let reply = self.call_once(endpoint, &uri, sent.clone()).await?;
            let Some(next) = reply.location.as_ref().filter(|_| is_redirect(reply.code)) else {
                return Ok(reply);
            };
            uri = resolve(&uri, next)?;
            // Other redirects become a GET, as in browsers.
            if !matches!(reply.code, 307 | 308) {
                sent = None;
            }
        }
        Err(format!("stopped after {REDIRECTS_MAX} redirects"))
    }

    async fn call_once(&self, endpoint: &Endpoint, uri: &Uri, body: Option<Bytes>) -> Result<Reply, String> {
        let host = uri.host().unwrap_or_default();
        let request = request(uri, body)?;
        let (route, gate) = {
            let tables = self.tables();
            let any = || tables.addresses.get(ANY_SERVICE).filter(|_| endpoint.is_service);
            let route = tables.route(uri).or_else(|| any().copied().map(Route::Address));
            (route, tables.gate.clone())
        };
        let address = match route {
            Some(Route::Handler(handler)) => return reply((handler.0)(request).await).await,
            Some(Route::Address(address)) => Some(address),
            None => None,
        };
        if endpoint.is_service && address.is_none() {
            let name = host.trim_end_matches(".svc");
            let name = name.split('.').next().unwrap_or_default();
            return Err(format!("service {} not found", crate::api::field::quote(name)));
        }
        if uri.scheme_str() != Some("https") {
            return Err("webhooks are only called over HTTPS".to_owned());
        }
        #[cfg(feature = "serve")]
        {
            let place = super::http::Place {
                host: host.trim_matches(['[', ']']),
                port: uri.port_u16().unwrap_or(HTTPS_PORT),
                address,
            };
            let trust = Trust {
                ca_bundle: &endpoint.ca_bundle,
                skips_checks: false,
                identity: None,
            };
            let Some(gate) = gate.filter(|_| address.is_some()) else {
                return super::http::post(&place, &trust, request).await;
            };
            let mut reply = Err("EOF".to_owned());
            let call = async { reply = super::http::post(&place, &trust, request).await };
            gate(host, uri.path(), Box::pin(call)).await?;
            reply
        }
        #[cfg(not(feature = "serve"))]
        let _ = gate;
        #[cfg(not(feature = "serve"))]
        Err(
            "calling webhooks over the network requires the features serve and tls of the crate fake-apiserver"
                .to_owned(),
        )
    }
}

/// Builds a POST of the body, or a GET without a body.
fn request(uri: &Uri, body: Option<Bytes>) -> Result<Request<Body>, String> {
    let path = uri.path_and_query().map_or("/", |it| it.as_str());
    let path = match path.starts_with('?') {
        true => format!("/{path}"),
        false => path.to_owned(),
    };
    let mut request = Request::builder()
        .method(if body.is_some() { Method::POST } else { Method::GET })
        .uri(path)
        .header(header::HOST, authority(uri))
        .header(header::ACCEPT, "application/json, */*")
        .header(header::USER_AGENT, "kube-apiserver-admission");
    if body.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let body = body.map_or_else(Body::empty, Body::from);
    request.body(body).map_err(|error| error.to_string())
}

/// Returns `true` if Go's client follows a redirect with this status.
fn is_redirect(code: u16) -> bool {
    matches!(code, 301 | 302 | 303 | 307 | 308)
}

/// Returns the target of a redirect, which may be relative.
fn resolve(from: &Uri, location: &str) -> Result<Uri, String> {
    let failed = || format!("failed to parse Location header {}", crate::api::field::quote(location));
    let given: Uri = location.parse().map_err(|_| failed())?;
    if given.authority().is_some() && given.scheme().is_some() {
        return Ok(given);
    }
    let mut parts = from.clone().into_parts();
    let path = match location.strip_prefix('/') {
        Some(_) => location.to_owned(),
        None => {
            let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{folder}/{location}")
        }
    };
    parts.path_and_query = Some(path.parse().map_err(|_| failed())?);
    Uri::from_parts(parts).map_err(|_| failed())
}

impl Transport for Routes {
    fn post<'a>(&'a self, endpoint: &'a Endpoint, url: &'a str, body: Bytes) -> BoxFuture<'a, Result<Reply, String>> {
        Box::pin(self.call(endpoint, url, body))
    }

    fn has_route(&self, endpoint: &Endpoint) -> bool {
        self.route_of(endpoint).is_some()
    }
}
