//! Accepts connections, optionally with TLS, serves requests, and closes connections.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use futures::future::{Either, select};
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::reconcile::BoxError;
use crate::tasks::TaskGroup;

/// Maximum length of the headers of a request in bytes, as in controller-runtime.
const HEADER_BYTES: usize = 1 << 20;
/// Maximum time until the headers of a request are complete, including the time for which the connection is idle
/// (controller-runtime's `IdleTimeout`).
const HEADER_TIME: Duration = Duration::from_secs(90);

/// Time limit of a TLS handshake.
#[cfg(feature = "tls")]
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Minimum and maximum pause after a failed accept, as in Go's `net/http`.
const ACCEPT_PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// TLS configuration of a server; `None` for plain HTTP.
#[cfg(feature = "tls")]
pub(crate) type Tls = Option<std::sync::Arc<tokio_rustls::rustls::ServerConfig>>;
#[cfg(not(feature = "tls"))]
pub(crate) type Tls = Option<Infallible>;

/// Serves HTTP/1.1 until `stop` is cancelled, then closes each connection after its current request.
pub(crate) async fn serve<S, B>(listener: &TcpListener, tls: Tls, service: S, stop: &CancellationToken)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    let connections = TaskGroup::default();
    while let Some((stream, _)) = stop.run_until_cancelled(accepted(|| listener.accept())).await {
        #[cfg_attr(
            not(feature = "tls"),
            expect(clippy::clone_on_copy, reason = "without TLS there is nothing to clone")
        )]
        let (service, stop, tls) = (service.clone(), stop.clone(), tls.clone());
        connections.spawn(async move {
            match tls {
                None => converse(stream, service, &stop).await,
                #[cfg(feature = "tls")]
                Some(config) => {
                    let handshake = tokio_rustls::TlsAcceptor::from(config).accept(stream);
                    match tokio::time::timeout(HANDSHAKE, handshake).await {
                        Ok(Ok(stream)) => converse(stream, service, &stop).await,
                        Ok(Err(err)) => tracing::debug!(%err, "a TLS handshake failed"),
                        Err(_) => tracing::debug!("a TLS handshake took too long"),
                    }
                }
                #[cfg(not(feature = "tls"))]
                Some(never) => match never {},
            }
        });
    }
    connections.finished().await;
}

async fn converse<S, B>(stream: impl AsyncRead + AsyncWrite + Unpin, service: S, stop: &CancellationToken)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body<Error: Into<BoxError>> + 'static,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES);
    let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
    // An error only affects this connection.
    if let Either::Right(((), connection)) = select(connection.as_mut(), std::pin::pin!(stop.cancelled())).await {
        connection.graceful_shutdown();
    } else {
        return;
    }
    let _ = connection.await;
}

/// Accepts the next connection. Pauses after a failure: if the process has no file descriptors left, the next attempt
/// also fails immediately.
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failed_connection_accepts_are_retried_with_increasing_pauses() {
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
