//! Connections to a server: requests for the control API go there, all others to `endpoints`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::{Request, Response, StatusCode};
use tower::{Service, ServiceExt as _};

use crate::control;
use crate::endpoints::Endpoints;
use crate::serve::{ServeOptions, Serving, serve};
use crate::server::ApiServer;

impl ApiServer {
    /// Listens for HTTP, on a free port if the address names port 0. No tokio clock must be paused: sockets live in
    /// real time. Requests must name loopback or the address in `Host`, and none may come from a page of another
    /// origin; see [`ServeOptions::accept_hosts`].
    pub async fn serve(&self, addr: SocketAddr) -> io::Result<Serving> {
        self.serve_with(addr, &ServeOptions::http()).await
    }

    /// Listens for HTTPS with a certificate of a generated authority; see [`Serving::kubeconfig`].
    #[cfg(feature = "tls")]
    pub async fn serve_tls(&self, addr: SocketAddr) -> io::Result<Serving> {
        self.serve_with(addr, &ServeOptions::tls()).await
    }

    /// Listens as `options` say, on a free port if the address names port 0.
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

    /// The server at the other end of a connection: a tower service without a socket, which fails where a fault breaks
    /// the connection.
    pub(crate) fn connection(
        &self,
    ) -> impl Service<Request<Body>, Response = Response<Body>, Error = io::Error, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static {
        let endpoints = Arc::clone(&self.endpoints);
        let tasks = self.tasks.clone();
        let control = self
            .control
            .as_ref()
            .map(|it| control::router(self.clone(), Arc::clone(it)));
        tower::service_fn(move |request: Request<Body>| {
            // A client keeps the workers as it keeps the server.
            let _ = &tasks;
            let endpoints = Arc::clone(&endpoints);
            let control = control.clone().filter(|_| control::is_for(request.uri().path()));
            async move {
                match control {
                    Some(control) => Ok(controlled(&endpoints, control, request).await),
                    None => endpoints.converse(request).await,
                }
            }
        })
    }
}

/// Answers a request to the control API, which only administrators and its own token may send. Its page has nothing of
/// the server, and asks for the token.
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
