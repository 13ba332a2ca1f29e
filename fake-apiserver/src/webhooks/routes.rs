//! `Routes`: who answers for which host.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri, header};
use tower::{Service, ServiceExt as _};

use super::http::reply;
use crate::registry::types::endpoint::Endpoint;
use crate::registry::webhook::transport::{Reply, Transport};

/// The port of a URL that names none.
const HTTPS_PORT: u16 = 443;

type Answering = dyn Fn(Request<Body>) -> BoxFuture<'static, Result<Reply, String>> + Send + Sync;

/// A service in this process that answers for a host.
#[derive(Clone)]
pub(crate) struct Handler(Arc<Answering>);

impl Handler {
    /// A tower service, such as an axum router.
    pub(crate) fn new<S>(service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        Self(Arc::new(move |request| {
            let service = service.clone();
            Box::pin(async move {
                let response = match service.oneshot(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                };
                reply(response).await
            })
        }))
    }
}

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handler")
    }
}

/// Addresses of webhook hosts. A host that is not named here is looked up and called as it stands; a service is
/// refused. Copies are the same routes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes(Arc<Mutex<Tables>>);

#[derive(Clone, Debug, Default)]
struct Tables {
    /// In this process.
    handlers: BTreeMap<String, Handler>,
    /// At another address than their name says.
    addresses: BTreeMap<String, SocketAddr>,
}

/// A host as the routes know it: without the port everyone means.
fn authority(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    match uri.port_u16() {
        None | Some(HTTPS_PORT) => host.to_owned(),
        Some(port) => format!("{host}:{port}"),
    }
}

impl Routes {
    /// The same routes, which from here on go their own way.
    pub(crate) fn apart(&self) -> Self {
        Self(Arc::new(Mutex::new(self.tables().clone())))
    }

    /// Answers for `host` by a service.
    pub(crate) fn answer(&self, host: &str, handler: Handler) {
        let host = host.trim_end_matches(":443").to_owned();
        self.tables().handlers.insert(host, handler);
    }

    /// Calls `host` at an address.
    pub(crate) fn resolve(&self, host: &str, address: SocketAddr) {
        let host = host.trim_end_matches(":443").to_owned();
        self.tables().addresses.insert(host, address);
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entry of a host, with or without its port.
    fn find<'a, T>(map: &'a BTreeMap<String, T>, uri: &Uri) -> Option<&'a T> {
        map.get(&authority(uri))
            .or_else(|| map.get(uri.host().unwrap_or_default()))
    }

    async fn call(&self, endpoint: &Endpoint, url: &str, body: Bytes) -> Result<Reply, String> {
        let uri: Uri = url.parse().map_err(|_| "invalid URL".to_owned())?;
        let host = uri.host().unwrap_or_default();
        let path = uri.path_and_query().map_or("/", |it| it.as_str());
        let request = Request::builder()
            .method(Method::POST)
            .uri(if path.starts_with('?') {
                format!("/{path}")
            } else {
                path.to_owned()
            })
            .header(header::HOST, authority(&uri))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Body::from(body))
            .map_err(|error| error.to_string())?;
        let (handler, address) = {
            let tables = self.tables();
            let address = Self::find(&tables.addresses, &uri).copied();
            (Self::find(&tables.handlers, &uri).cloned(), address)
        };
        if let Some(handler) = handler {
            return (handler.0)(request).await;
        }
        if endpoint.is_service && address.is_none() {
            let name = host.trim_end_matches(".svc");
            let name = name.split('.').next().unwrap_or_default();
            return Err(format!("service {} not found", crate::api::field::quote(name)));
        }
        let place = super::http::Place {
            host: host.trim_matches(['[', ']']),
            port: uri.port_u16().unwrap_or(HTTPS_PORT),
            address,
        };
        super::http::post(&place, &endpoint.ca_bundle, request).await
    }
}

impl Transport for Routes {
    fn post<'a>(&'a self, endpoint: &'a Endpoint, url: &'a str, body: Bytes) -> BoxFuture<'a, Result<Reply, String>> {
        Box::pin(self.call(endpoint, url, body))
    }
}
