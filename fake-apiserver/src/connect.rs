//! Connections to a server: dispatches requests to the control API or to `endpoints`.

use std::io;
#[cfg(feature = "serve")]
use std::net::SocketAddr;
use std::sync::Arc;

#[cfg(feature = "serve")]
use axum::Router;
use axum_core::body::Body;
#[cfg(feature = "serve")]
use http::StatusCode;
use http::{Request, Response};
use tower::Service;
#[cfg(feature = "serve")]
use tower::ServiceExt as _;

#[cfg(feature = "serve")]
use crate::control;
#[cfg(feature = "serve")]
use crate::endpoints::Endpoints;
#[cfg(feature = "serve")]
use crate::serve::{ServeOptions, Serving, serve};
use crate::server::ApiServer;

#[cfg(feature = "serve")]
impl ApiServer {
    /// Listens for HTTP; port 0 selects a free port. Tokio's clock must not be paused, because sockets use real time.
    /// The `Host` of requests must be loopback or the address, and requests from web pages of a different origin are
    /// refused; see [`ServeOptions::accept_hosts`].
    pub async fn serve(&self, addr: SocketAddr) -> io::Result<Serving> {
        self.serve_with(addr, &ServeOptions::http()).await
    }

    /// Listens for HTTPS with a certificate of a generated authority, which [`Serving::kubeconfig`] contains.
    #[cfg(feature = "tls")]
    pub async fn serve_tls(&self, addr: SocketAddr) -> io::Result<Serving> {
        self.serve_with(addr, &ServeOptions::tls()).await
    }

    /// Listens with these options; port 0 selects a free port.
    ///
    /// ```
    /// use fake_apiserver::{ApiServer, ServeOptions};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let options = ServeOptions::http().accept_hosts(["api.test"]);
    /// let serving = ApiServer::start().serve_with("127.0.0.1:0".parse()?, &options).await?;
    /// assert!(serving.url().starts_with("http://127.0.0.1:"));
    /// serving.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn serve_with(&self, addr: SocketAddr, options: &ServeOptions) -> io::Result<Serving> {
        serve(addr, options, self.connection()).await
    }
}

impl ApiServer {
    /// Returns the server side of a connection: a tower service without a socket. Its calls fail if a fault breaks the
    /// connection.
    pub(crate) fn connection(
        &self,
    ) -> impl Service<Request<Body>, Response = Response<Body>, Error = io::Error, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static {
        let endpoints = Arc::clone(&self.endpoints);
        let tasks = self.tasks.clone();
        #[cfg(feature = "serve")]
        let control = self
            .control
            .as_ref()
            .map(|it| control::router(self.clone(), Arc::clone(it)));
        tower::service_fn(move |request: Request<Body>| {
            // Keeps the workers running as long as the server has clients.
            let _ = &tasks;
            let endpoints = Arc::clone(&endpoints);
            #[cfg(feature = "serve")]
            let control = control.clone().filter(|_| control::is_for(request.uri().path()));
            async move {
                #[cfg(feature = "serve")]
                if let Some(control) = control {
                    return Ok(controlled(&endpoints, control, request).await);
                }
                endpoints.converse(request).await
            }
        })
    }
}

/// Handles a request to the control API, which only users in `system:masters` may use. The page requires no permission:
/// it contains no data of the server and prompts for a token.
#[cfg(feature = "serve")]
async fn controlled(endpoints: &Endpoints, control: Router, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let is_page = control::is_page(&parts);
    let admitted = match is_page {
        true => endpoints.check_arrival(&parts),
        false => endpoints.admit_master(&parts),
    };
    if let Err(status) = admitted {
        let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return control::refuse(code, &status.message);
    }
    if is_page {
        return control::page(&parts);
    }
    let answered = control.oneshot(Request::from_parts(parts, body)).await;
    answered.unwrap_or_else(|never| match never {})
}
