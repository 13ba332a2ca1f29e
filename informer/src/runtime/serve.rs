//! `Server`: serves health checks and metrics over HTTP.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use kube::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::access::Access;
use super::health::{EndpointResponse, Endpoints};
use super::listen;
use super::runnable::{Runnable, RunnableGroup};
use crate::Error;
use crate::reconcile::BoxError;

/// Serves [`Endpoints`] over HTTP/1.1: `/healthz`, `/readyz` and `/metrics`. It is a [`Runnable`].
///
/// ```
/// use informer::runtime::{Manager, Server};
///
/// # async fn add(manager: &Manager) -> Result<(), informer::Error> {
/// let server = Server::bind(manager.endpoints(), ([0, 0, 0, 0], 8443).into()).await?;
/// // RBAC determines which users may read `/metrics`. With the feature `tls`, `server.tls(certificates)` enables TLS.
/// manager.add(server.authorize(&manager.client()))
/// # }
/// ```
pub struct Server {
    endpoints: Endpoints,
    listener: TcpListener,
    access: Option<Arc<Access>>,
    #[cfg(feature = "tls")]
    certificates: Option<super::cert_watcher::CertWatcher>,
}

impl Server {
    /// Listens on an address. Port 0 selects a free port.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot listen on the address.
    pub async fn bind(endpoints: Endpoints, address: SocketAddr) -> Result<Self, Error> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|err| Error::refused(format!("cannot listen on {address}: {err}")))?;
        Ok(Self {
            endpoints,
            listener,
            access: None,
            #[cfg(feature = "tls")]
            certificates: None,
        })
    }

    /// Requires authorization for `/metrics` (controller-runtime's `WithAuthenticationAndAuthorization`): a TokenReview
    /// identifies the user of the bearer token, and a SubjectAccessReview checks that the user may `get` the path.
    /// Permissions are cached for a minute, and refusals for half a minute. Health and readiness do not require
    /// authorization, because the kubelet does not send a token.
    #[must_use]
    pub fn authorize(mut self, client: &Client) -> Self {
        self.access = Some(Arc::new(Access::new(client)));
        self
    }

    /// Enables TLS. `certificates` is a [`CertWatcher`](super::CertWatcher), or a fixed
    /// [`Certificate`](super::Certificate).
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, certificates: impl Into<super::cert_watcher::CertWatcher>) -> Self {
        self.certificates = Some(certificates.into());
        self
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    async fn serve(self, stop: CancellationToken) {
        let (endpoints, access) = (self.endpoints, self.access);
        let service = service_fn(move |request: Request<Incoming>| {
            let (endpoints, access) = (endpoints.clone(), access.clone());
            async move {
                let path = request.uri().path();
                let refusal = match &access {
                    Some(access) if path.trim_matches('/') == "metrics" => {
                        access.refusal(request.headers(), path).await
                    }
                    Some(_) | None => None,
                };
                let answer = refusal.unwrap_or_else(|| answer(&endpoints, &request));
                Ok::<_, Infallible>(response(answer))
            }
        });
        #[cfg(feature = "tls")]
        if let Some(certificates) = self.certificates {
            let config = Some(certificates.server_config());
            let serving = listen::serve(&self.listener, config, service, &stop);
            futures::future::join(serving, certificates.run(stop.clone())).await;
            return;
        }
        listen::serve(&self.listener, None, service, &stop).await;
    }
}

fn answer(endpoints: &Endpoints, request: &Request<Incoming>) -> EndpointResponse {
    match *request.method() {
        Method::GET | Method::HEAD => endpoints.answer(request.uri().path(), request.uri().query().unwrap_or_default()),
        _ => EndpointResponse {
            code: 405,
            content_type: "text/plain; charset=utf-8",
            body: "method not allowed\n".to_owned(),
        },
    }
}

fn response(answer: EndpointResponse) -> Response<String> {
    let mut response = Response::new(answer.body);
    *response.status_mut() = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let content_type = header::HeaderValue::from_static(answer.content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

impl Runnable for Server {
    fn name(&self) -> String {
        match self.address() {
            Some(address) => format!("server on {address}"),
            None => "server".to_owned(),
        }
    }

    fn group(&self) -> RunnableGroup {
        RunnableGroup::Server
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> {
        self.serve(stop).map(Ok).boxed()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}
