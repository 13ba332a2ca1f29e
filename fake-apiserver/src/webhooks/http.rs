//! One request over its own connection.

use http_body_util::{BodyExt as _, Limited};
use std::error::Error as _;
use std::io;
use std::net::SocketAddr;

use axum::body::Body;
use http::{Request, Response, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::registry::webhook::transport::{REPLY_BYTES_MAX, Reply};

/// Address to connect to.
pub(super) struct Place<'a> {
    /// The name the certificate must have.
    pub(super) host: &'a str,
    pub(super) port: u16,
    /// The address, where it is not the name's.
    pub(super) address: Option<SocketAddr>,
}

/// Connects, speaks TLS, posts and reads the answer.
pub(super) async fn post(place: &Place<'_>, ca_bundle: &[u8], request: Request<Body>) -> Result<Reply, String> {
    let stream = connect(place).await?;
    #[cfg(feature = "tls")]
    {
        let stream = super::https::secure(stream, place.host, ca_bundle).await?;
        send(stream, request).await
    }
    #[cfg(not(feature = "tls"))]
    {
        let _ = (stream, ca_bundle, request);
        Err("webhooks over the network need the feature tls of this server".to_owned())
    }
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

#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "without TLS nothing is sent"))]
async fn send(stream: impl AsyncRead + AsyncWrite + Unpin + Send, request: Request<Body>) -> Result<Reply, String> {
    let shown = |error: hyper::Error| {
        // A peer that closes the connection without taking leave of TLS is no other end to Go.
        let cause = error.source().and_then(|it| it.downcast_ref::<io::Error>());
        let is_cut = cause.is_some_and(|it| it.kind() == io::ErrorKind::UnexpectedEof);
        if error.is_incomplete_message() || is_cut {
            "EOF".to_owned()
        } else {
            error.to_string()
        }
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(shown)?;
    let answered = async {
        let response = sender.send_request(request).await.map_err(shown)?;
        reply(response).await
    };
    // The connection is driven here, so that it ends with the call.
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

/// Reads an answer, but not without end.
pub(super) async fn reply<B>(response: Response<B>) -> Result<Reply, String>
where
    B: http_body::Body + Send,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = response.into_parts();
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let body = Limited::new(body, REPLY_BYTES_MAX)
        .collect()
        .await
        .map_err(|error| error.to_string())?;
    Ok(Reply {
        code: parts.status.as_u16(),
        content_type: content_type.to_owned(),
        body: body.to_bytes(),
    })
}
