//! `Server`: the endpoints over HTTP.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::health::{Answer, Endpoints};
use super::runnable::{Group, Runnable};
use crate::Error;
use crate::reconcile::BoxError;
use crate::tasks::TaskGroup;

/// The bounds of a request, as in controller-runtime: the header in bytes, and the time it may take.
const HEADER_BYTES: usize = 1 << 20;
const HEADER_TIME: Duration = Duration::from_secs(32);

/// The first pause after a connection could not be accepted, and the longest, as in Go's `net/http`.
const ACCEPT_PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

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
        let connections = TaskGroup::default();
        while let Some((stream, _)) = stop.run_until_cancelled(accepted(|| self.listener.accept())).await {
            let endpoints = self.endpoints.clone();
            let service = service_fn(move |request| {
                let answer = answer(&endpoints, &request);
                async move { Ok::<_, Infallible>(answer) }
            });
            connections.spawn(async move {
                let mut http = http1::Builder::new();
                http.timer(TokioTimer::new())
                    .header_read_timeout(HEADER_TIME)
                    .max_buf_size(HEADER_BYTES);
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }
}

/// The next connection. One that fails while it is accepted concerns nobody else; but where the process has no file
/// descriptors left, the next fails at once, too.
async fn accepted<T, Fut: Future<Output = io::Result<T>>>(accept: impl Fn() -> Fut) -> T {
    let mut pause = ACCEPT_PAUSES.0;
    loop {
        match accept().await {
            Ok(connection) => return connection,
            Err(err) => tracing::warn!(%err, ?pause, "a connection was not accepted"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(ACCEPT_PAUSES.1);
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_cannot_accept_waits_longer_and_longer() {
        let (began, tries) = (Instant::now(), Cell::new(0));
        let no_more_files = || {
            tries.set(tries.get() + 1);
            let tried = tries.get();
            async move {
                if tried <= 10 {
                    Err(io::Error::from_raw_os_error(24))
                } else {
                    Ok(tried)
                }
            }
        };
        assert_eq!(accepted(no_more_files).await, 11);
        let pauses: u128 = [5, 10, 20, 40, 80, 160, 320, 640, 1_000, 1_000].iter().sum();
        assert_eq!(began.elapsed().as_millis(), pauses);
    }
}
