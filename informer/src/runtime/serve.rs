//! `Server`: the endpoints over HTTP.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;

use futures::future::{BoxFuture, FutureExt};
use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::health::{Answer, Endpoints};
use super::listen;
use super::runnable::{Group, Runnable};
use crate::Error;
use crate::reconcile::BoxError;

/// Serves [`Endpoints`] over HTTP/1.1, without TLS: `/healthz`, `/readyz`, `/metrics`. It is a [`Runnable`].
pub struct Server {
    endpoints: Endpoints,
    listener: TcpListener,
}

impl Server {
    /// Listens on an address; port 0 is any.
    ///
    /// # Errors
    ///
    /// If it cannot.
    pub async fn bind(endpoints: Endpoints, address: SocketAddr) -> Result<Self, Error> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|err| Error::refused(format!("listening on {address}: {err}")))?;
        Ok(Self { endpoints, listener })
    }

    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    async fn serve(self, stop: CancellationToken) {
        let endpoints = self.endpoints;
        let service = service_fn(move |request| {
            let answer = answer(&endpoints, &request);
            async move { Ok::<_, Infallible>(answer) }
        });
        listen::serve(&self.listener, None, service, &stop).await;
    }
}

fn answer(endpoints: &Endpoints, request: &Request<Incoming>) -> Response<String> {
    let answer = match *request.method() {
        Method::GET | Method::HEAD => endpoints.answer(request.uri().path(), request.uri().query().unwrap_or_default()),
        _ => Answer {
            code: 405,
            content_type: "text/plain; charset=utf-8",
            body: "method not allowed\n".to_owned(),
        },
    };
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

    fn group(&self) -> Group {
        Group::Server
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
