//! Sends one request over its own connection, to a webhook or to an aggregated API server.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum_core::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(feature = "tls")]
use tokio_rustls::client::TlsStream;

use super::reply::reply;
use super::trust::Trust;
use crate::registry::webhook::transport::Reply;

/// The server to connect to.
pub(super) struct Place<'a> {
    /// The name in the server's certificate.
    pub(super) host: &'a str,
    pub(super) port: u16,
    /// Address to connect to instead of resolving the name.
    pub(super) address: Option<SocketAddr>,
}

/// Connects, performs the TLS handshake, sends the request, and returns the response. The caller reads the response
/// body from the connection.
pub(super) async fn forward(
    place: &Place<'_>,
    trust: &Trust<'_>,
    request: Request<Body>,
) -> Result<Response<Body>, String> {
    pass_on(open(place, trust, "API servers").await?, request).await
}

/// Connects, performs the TLS handshake, sends the request and reads the response.
pub(super) async fn post(place: &Place<'_>, trust: &Trust<'_>, request: Request<Body>) -> Result<Reply, String> {
    send(open(place, trust, "webhooks").await?, request).await
}

#[cfg(feature = "tls")]
async fn open(place: &Place<'_>, trust: &Trust<'_>, _: &str) -> Result<TlsStream<TcpStream>, String> {
    super::https::secure(connect(place).await?, place.host, trust).await
}

/// Connects, and then fails because TLS requires the feature `tls`. `called` describes the server in the error.
#[cfg(not(feature = "tls"))]
async fn open(place: &Place<'_>, _: &Trust<'_>, called: &str) -> Result<TcpStream, String> {
    connect(place).await?;
    Err(format!(
        "calling {called} over the network requires the feature tls of the crate fake-apiserver"
    ))
}

async fn connect(place: &Place<'_>) -> Result<TcpStream, String> {
    let (connected, shown) = match place.address {
        Some(address) => (TcpStream::connect(address).await, address.to_string()),
        None => {
            let connected = TcpStream::connect((place.host, place.port)).await;
            (connected, format!("{}:{}", place.host, place.port))
        }
    };
    connected.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("dial tcp {shown}: connect: connection refused"),
        _ => format!("dial tcp {shown}: {error}"),
    })
}

/// Returns Go's message for a connection error.
fn shown(error: hyper::Error) -> String {
    match error.is_incomplete_message() {
        true => "EOF".to_owned(),
        false => error.to_string(),
    }
}

async fn pass_on<S>(stream: S, request: Request<Body>) -> Result<Response<Body>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = TokioIo::new(Cuttable(stream));
    let (mut sender, connection) = http1::handshake(stream).await.map_err(shown)?;
    let mut connection: Connection = Box::pin(connection);
    let mut answered = Box::pin(async move { sender.send_request(request).await });
    let response = tokio::select! {
        biased;
        response = &mut answered => response.map_err(shown)?,
        ended = &mut connection => {
            ended.map_err(shown)?;
            answered.await.map_err(shown)?
        }
    };
    Ok(response.map(|body| {
        Body::new(Arriving {
            body,
            connection: Some(connection),
        })
    }))
}

/// Future that reads from and writes to a connection.
type Connection = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// A response body that is still arriving. Reading it drives the connection, which is closed when the body is dropped.
struct Arriving {
    body: Incoming,
    /// `None` after the connection has ended.
    connection: Option<Connection>,
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(connection) = &mut self.connection
            && connection.as_mut().poll(cx).is_ready()
        {
            // A connection error is also returned as an error of the body.
            self.connection = None;
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

async fn send(stream: impl AsyncRead + AsyncWrite + Unpin + Send, request: Request<Body>) -> Result<Reply, String> {
    let stream = TokioIo::new(Cuttable(stream));
    let (mut sender, connection) = http1::handshake(stream).await.map_err(shown)?;
    let answered = async {
        let response = sender.send_request(request).await.map_err(shown)?;
        reply(response).await
    };
    // The connection is polled here rather than in a task, so that it ends with the call.
    let (mut connection, mut answered) = (Box::pin(connection), Box::pin(answered));
    tokio::select! {
        biased;
        reply = &mut answered => reply,
        ended = &mut connection => {
            ended.map_err(shown)?;
            answered.await
        }
    }
}

/// A stream that, like Go, tolerates a peer that closes the connection without TLS's `close_notify`.
struct Cuttable<S>(S);

impl<S: AsyncRead + Unpin> AsyncRead for Cuttable<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.0).poll_read(cx, buffer) {
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            polled => polled,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cuttable<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
