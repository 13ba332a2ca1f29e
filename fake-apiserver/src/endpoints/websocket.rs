//! WebSockets: the handshake, watches over them, and the channels of `exec`, `attach` and `port-forward` (the framing
//! of kube-apiserver's `wsstream` and of `v5.channel.k8s.io`; `port-forward` in SPDY, too).

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{SinkExt as _, StreamExt as _};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use sha1::{Digest as _, Sha1};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

use super::call::Call;
use super::spdy::Session;
use super::watch_protobuf;
use crate::api::json::json;
use crate::api::status::Status;
use crate::api::streams::{Connection, ExecHandler, ExecOutput, Listening, PortHandler, Stdin, Streams};

/// The most that standard input or a forwarded port may send; then the connection is closed.
const INPUT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The most that is sent in one message.
const CHUNK_BYTES: usize = 32 * 1024;

/// Channels of `exec` and `attach`.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
/// The channel of v5 that says which other one has ended.
const CLOSE: u8 = 255;

/// The protocols of channels, newest first; the empty one is that of a client which names none.
const CHANNEL_PROTOCOLS: [&str; 6] = [
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "",
];

/// The protocol of `port-forward`, the version of SPDY that carries it, and the name of both in a WebSocket.
const PORT_FORWARD: &str = "portforward.k8s.io";
const SPDY: &str = "SPDY/3.1";
const TUNNEL_PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";
const STREAM_PROTOCOL_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// Prefix of the protocol name that is a bearer token (in base64url), since browsers can send no other header.
pub(super) const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// A connection that is no longer HTTP's.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

type Work = Box<dyn FnOnce(Box<dyn Stream>) -> BoxFuture<'static, ()> + Send>;

/// Continuation of a connection once the answer 101 has been sent: an extension of that answer, to be taken once.
#[derive(Clone)]
pub(crate) struct Upgrade(Arc<Mutex<Option<Work>>>);

impl Upgrade {
    fn new(work: impl FnOnce(Box<dyn Stream>) -> BoxFuture<'static, ()> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(work)))))
    }

    /// Takes the work to do on the connection.
    pub(crate) fn take(&self) -> Option<Work> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps a value until the work is done or given up.
    pub(super) fn keep(&self, kept: impl Send + 'static) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(work) = slot.take() {
            *slot = Some(Box::new(move |stream| {
                let work = work(stream);
                Box::pin(async move {
                    work.await;
                    drop(kept);
                })
            }));
        }
    }
}

/// Returns `true` if a request asks for a WebSocket.
pub(super) fn is_asked_for(headers: &HeaderMap) -> bool {
    has_word(headers, &header::CONNECTION, "upgrade") && has_word(headers, &header::UPGRADE, "websocket")
}

fn has_word(headers: &HeaderMap, name: &header::HeaderName, word: &str) -> bool {
    words(headers, name).any(|it| it.eq_ignore_ascii_case(word))
}

/// The words of a header that is a list.
pub(super) fn words<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|it| it.to_str().ok());
    values
        .flat_map(|it| it.split(','))
        .map(str::trim)
        .filter(|it| !it.is_empty())
}

/// The answer that ends HTTP on a connection, after which `work` has it.
fn switch(
    call: &Call,
    protocol: &str,
    work: impl FnOnce(WebSocketStream<Box<dyn Stream>>) -> BoxFuture<'static, ()> + Send + 'static,
) -> Result<Response<Body>, Status> {
    let headers = &call.parts.headers;
    let key = headers.get(header::SEC_WEBSOCKET_KEY);
    let version = headers.get(header::SEC_WEBSOCKET_VERSION);
    let (Some(key), Some("13")) = (key, version.and_then(|it| it.to_str().ok())) else {
        return Err(Status::bad_request(
            "a WebSocket needs Sec-WebSocket-Key and Sec-WebSocket-Version 13",
        ));
    };
    let accept = accept_key(key.as_bytes());
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answered = response.headers_mut();
    answered.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    answered.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::try_from(accept) {
        answered.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    if let Some(protocol) = HeaderValue::from_str(protocol).ok().filter(|it| !it.is_empty()) {
        answered.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    response.extensions_mut().insert(Upgrade::new(|stream| {
        Box::pin(async move { work(WebSocketStream::from_raw_socket(stream, Role::Server, None).await).await })
    }));
    Ok(response)
}

/// A watch over a WebSocket: each event of `answer` is a message.
pub(super) fn watch(call: &Call, answer: Response<Body>) -> Result<Response<Body>, Status> {
    let is_text = answer
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|it| it.to_str().ok())
        .is_none_or(|it| it.starts_with("application/json"));
    // A client that names one protocol is answered that; kube-apiserver does not look at it.
    let names = words(&call.parts.headers, &header::SEC_WEBSOCKET_PROTOCOL);
    let mut names = names.filter(|it| !it.starts_with(BEARER_PROTOCOL));
    let protocol = names.next().unwrap_or_default();
    let (parts, body) = answer.into_parts();
    let mut switched = switch(call, protocol, move |socket| {
        Box::pin(send_events(socket, body, is_text))
    })?;
    let upgrade = switched.extensions_mut().remove::<Upgrade>();
    *switched.extensions_mut() = parts.extensions;
    switched.extensions_mut().extend(
        upgrade
            .map(|upgrade| {
                let mut one = http::Extensions::new();
                one.insert(upgrade);
                one
            })
            .unwrap_or_default(),
    );
    Ok(switched)
}

/// Sends the lines of a body, until it or the client ends.
async fn send_events(socket: WebSocketStream<Box<dyn Stream>>, mut body: Body, is_text: bool) {
    let (mut sender, mut receiver) = socket.split();
    let mut rest: Vec<u8> = Vec::new();
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            message = receiver.next() => match message {
                // Messages of a watcher are ignored; the library answers pings.
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => continue,
            },
        };
        let Some(Ok(frame)) = frame else { break };
        let Ok(data) = frame.into_data() else { continue };
        if !is_text {
            // A frame is one event, and a message needs no length.
            let event = data.get(watch_protobuf::LENGTH_BYTES..).unwrap_or_default();
            if sender.send(Message::binary(event.to_vec())).await.is_err() {
                return;
            }
            continue;
        }
        rest.extend_from_slice(&data);
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let message = match String::from_utf8(line) {
                Ok(text) => Message::text(text),
                Err(error) => Message::binary(error.into_bytes()),
            };
            if sender.send(message).await.is_err() {
                return;
            }
        }
    }
    // The client may be gone.
    let _ = sender.send(normal_end()).await;
}

/// The ways in which a client asks for SPDY.
enum Spdy {
    /// Within a WebSocket, as kubectl does.
    Tunnel,
    /// In the place of HTTP, as kubectl did before 1.31.
    Alone,
    Other,
}

fn asked_for_spdy(headers: &HeaderMap) -> Option<Spdy> {
    let is_spdy = |it: &&str| it.to_ascii_uppercase().starts_with("SPDY/");
    if is_asked_for(headers) {
        let mut asked = words(headers, &header::SEC_WEBSOCKET_PROTOCOL)
            .filter(is_spdy)
            .peekable();
        asked.peek()?;
        let is_tunnel = asked.any(|it| it == TUNNEL_PROTOCOL);
        return Some(if is_tunnel { Spdy::Tunnel } else { Spdy::Other });
    }
    let asked = words(headers, &header::UPGRADE).find(is_spdy)?;
    Some(if asked.eq_ignore_ascii_case(SPDY) {
        Spdy::Alone
    } else {
        Spdy::Other
    })
}

/// Ports whose connections are streams of SPDY, the messages of a WebSocket being its bytes.
fn tunnel(call: &Call, listening: Listening) -> Result<Response<Body>, Status> {
    switch(call, TUNNEL_PROTOCOL, move |mut socket| {
        Box::pin(async move {
            let mut session = Session::new(listening);
            while let Some(Ok(message)) = socket.next().await {
                let Message::Binary(bytes) = message else { continue };
                let Ok(answer) = session.receive(&bytes) else { break };
                if !answer.is_empty() && socket.send(Message::Binary(answer)).await.is_err() {
                    return;
                }
            }
            // The client may be gone.
            let _ = socket.send(normal_end()).await;
        })
    })
}

/// The same on the connection itself.
fn spdy(call: &Call, listening: Listening) -> Result<Response<Body>, Status> {
    let asked: Vec<&str> = words(&call.parts.headers, &STREAM_PROTOCOL_VERSION).collect();
    if !asked.is_empty() && !asked.contains(&PORT_FORWARD) {
        let asked = asked.join(" ");
        let why = format!("unable to negotiate protocol: client supports [{asked}], server accepts [{PORT_FORWARD}]");
        return Err(Status::new(403, "Forbidden", why));
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answered = response.headers_mut();
    answered.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    answered.insert(header::UPGRADE, HeaderValue::from_static(SPDY));
    answered.insert(STREAM_PROTOCOL_VERSION, HeaderValue::from_static(PORT_FORWARD));
    response.extensions_mut().insert(Upgrade::new(|mut stream| {
        Box::pin(async move {
            let (mut session, mut buffer) = (Session::new(listening), BytesMut::new());
            while let Ok(1..) = stream.read_buf(&mut buffer).await {
                let Ok(answer) = session.receive(&buffer.split()) else {
                    return;
                };
                if stream.write_all(&answer).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
        })
    }));
    Ok(response)
}

/// A connection to a Pod.
pub(super) fn connect(call: &Call, connection: Connection) -> Result<Response<Body>, Status> {
    let headers = &call.parts.headers;
    let connection = match (asked_for_spdy(headers), connection) {
        (Some(Spdy::Tunnel), Connection::Ports(_, listening)) => return tunnel(call, listening),
        (Some(Spdy::Alone), Connection::Ports(_, listening)) => return spdy(call, listening),
        (Some(_), _) => {
            let why = "SPDY is spoken here for port-forward alone: use a client that speaks v5.channel.k8s.io over \
                       WebSockets";
            return Err(Status::new(501, "NotImplemented", why));
        }
        (None, Connection::Ports(asked, _)) if asked.is_empty() => {
            return Err(Status::bad_request("query parameter \"ports\" is required"));
        }
        (None, connection) => connection,
    };
    if !is_asked_for(headers) {
        return Err(Status::bad_request("Upgrade request required"));
    }
    let mut asked: Vec<&str> = words(headers, &header::SEC_WEBSOCKET_PROTOCOL).collect();
    asked.retain(|it| !it.starts_with(BEARER_PROTOCOL));
    if asked.is_empty() {
        asked.push("");
    }
    let protocol = asked
        .iter()
        .find_map(|it| CHANNEL_PROTOCOLS.iter().find(|known| known == &it));
    let Some(&protocol) = protocol else {
        let known = CHANNEL_PROTOCOLS.join(" ");
        let why = format!(
            "unable to negotiate protocol: client supports [{}], server accepts [{}]",
            asked.join(" "),
            known.trim_end()
        );
        return Err(Status::bad_request(why));
    };
    switch(call, protocol, move |socket| {
        Box::pin(async move {
            let mut channels = Channels { socket, protocol };
            // A client that is gone has no use for the rest.
            let _ = match connection {
                Connection::Exec(handler, command, streams) => exec(&mut channels, &handler, &command, streams).await,
                Connection::Attach(text, streams) => attach(&mut channels, text, streams).await,
                Connection::Ports(asked, listening) => forward(&mut channels, &asked, &listening).await,
            };
            channels.close().await;
        })
    })
}

/// The message that ends a connection in order, which clients tell from one that broke.
fn normal_end() -> Message {
    Message::Close(Some(CloseFrame {
        code: CloseCode::Normal,
        reason: Utf8Bytes::default(),
    }))
}

/// The client is gone, or broke the protocol.
struct Gone;

/// Messages that begin with the number of a channel.
struct Channels {
    socket: WebSocketStream<Box<dyn Stream>>,
    protocol: &'static str,
}

impl Channels {
    fn is_base64(&self) -> bool {
        self.protocol.contains("base64")
    }

    /// Sends bytes on a channel; nothing at all is a message, too.
    async fn send(&mut self, channel: u8, bytes: &[u8]) -> Result<(), Gone> {
        let mut chunks = bytes.chunks(CHUNK_BYTES).peekable();
        let none: &[u8] = &[];
        let first = chunks.next().unwrap_or(none);
        for chunk in std::iter::once(first).chain(chunks) {
            let message = match self.is_base64() {
                true => Message::text(format!("{channel}{}", BASE64_STANDARD.encode(chunk))),
                false => Message::binary(Bytes::from([&[channel][..], chunk].concat())),
            };
            self.socket.send(message).await.map_err(|_| Gone)?;
        }
        Ok(())
    }

    /// The next message: its channel and bytes.
    async fn receive(&mut self) -> Result<(u8, Bytes), Gone> {
        loop {
            let bytes: Bytes = match self.socket.next().await {
                Some(Ok(Message::Binary(bytes))) => bytes,
                Some(Ok(Message::Text(text))) => text.into(),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Gone),
            };
            // An empty message keeps the connection alive.
            let Some((channel, rest)) = bytes.split_first() else {
                continue;
            };
            if !self.is_base64() {
                return Ok((*channel, bytes.slice(1..)));
            }
            let decoded = BASE64_STANDARD.decode(rest).map_err(|_| Gone)?;
            return Ok((channel.wrapping_sub(b'0'), decoded.into()));
        }
    }

    /// Says how a command ended.
    async fn end(&mut self, exit_code: i32) -> Result<(), Gone> {
        let failed = format!("command terminated with non-zero exit code: exit status {exit_code}");
        let status = match exit_code {
            0 => json!({"metadata": {}, "status": "Success"}),
            code => json!({
                "metadata": {}, "status": "Failure", "message": failed, "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
        };
        match (self.protocol.starts_with('v'), exit_code) {
            (true, _) => self.send(ERROR, status.to_string().as_bytes()).await,
            // Before v4 only a failed command reports its end, as text.
            (false, 0) => Ok(()),
            (false, _) => self.send(ERROR, failed.as_bytes()).await,
        }
    }

    /// Closes in order: waits for the client to agree.
    async fn close(mut self) {
        if self.socket.send(normal_end()).await.is_ok() {
            while let Some(Ok(_)) = self.socket.next().await {}
        }
    }
}

/// Tells the client that the connection stands, as kube-apiserver does: with an empty message on its first channel.
async fn open(channels: &mut Channels, streams: Streams) -> Result<(), Gone> {
    let first = match streams {
        Streams { stdout: true, .. } => STDOUT,
        Streams { stderr: true, .. } => STDERR,
        _ => ERROR,
    };
    channels.send(first, &[]).await
}

/// Runs a command: the handler is asked at the start, and again whenever more of its input has come.
async fn exec(
    channels: &mut Channels,
    handler: &ExecHandler,
    command: &[String],
    streams: Streams,
) -> Result<(), Gone> {
    open(channels, streams).await?;
    let (mut bytes, mut seen, mut has_ended) = (Vec::new(), 0, !streams.stdin);
    loop {
        let stdin = Stdin {
            bytes: &bytes,
            seen,
            has_ended,
        };
        let output: ExecOutput = handler(command, stdin);
        seen = bytes.len();
        if streams.stdout && !output.stdout.is_empty() {
            channels.send(STDOUT, &output.stdout).await?;
        }
        if streams.stderr && !output.stderr.is_empty() {
            channels.send(STDERR, &output.stderr).await?;
        }
        if !output.awaits_stdin || has_ended {
            return channels.end(output.exit_code).await;
        }
        match channels.receive().await? {
            (STDIN, more) => bytes.extend_from_slice(&more),
            (CLOSE, channel) if channels.protocol.starts_with("v5") => has_ended |= channel.as_ref() == [STDIN],
            // The size of the terminal.
            _ => {}
        }
        if bytes.len() > INPUT_BYTES_MAX {
            return Err(Gone);
        }
    }
}

/// Shows what a container has written.
async fn attach(channels: &mut Channels, text: String, streams: Streams) -> Result<(), Gone> {
    open(channels, streams).await?;
    if streams.stdout && !text.is_empty() {
        channels.send(STDOUT, text.as_bytes()).await?;
    }
    channels.end(0).await
}

/// Forwards ports: each has a channel for data and one for errors, in the order they were asked for. Both begin with
/// the number of the port.
async fn forward(channels: &mut Channels, asked: &[u16], listening: &Listening) -> Result<(), Gone> {
    let ports: Vec<(u16, Option<&PortHandler>)> = asked.iter().map(|it| (*it, listening.get(it))).collect();
    let mut received: Vec<Vec<u8>> = vec![Vec::new(); ports.len()];
    let mut done = vec![false; ports.len()];
    for (number, (port, handler)) in (0_u8..).step_by(2).zip(&ports) {
        channels.send(number, &port.to_le_bytes()).await?;
        channels.send(number + 1, &port.to_le_bytes()).await?;
        if handler.is_none() {
            let why = format!("an error occurred forwarding {port}: connection refused");
            channels.send(number + 1, why.as_bytes()).await?;
        }
    }
    loop {
        let (channel, bytes) = channels.receive().await?;
        let at = usize::from(channel / 2);
        let (Some((_, Some(handler))), 0, Some(false)) = (ports.get(at), channel % 2, done.get(at)) else {
            continue;
        };
        received[at].extend_from_slice(&bytes);
        if received.iter().map(Vec::len).sum::<usize>() > INPUT_BYTES_MAX {
            return Err(Gone);
        }
        if let Some(answer) = handler(&received[at]) {
            channels.send(channel, &answer).await?;
            done[at] = true;
        }
        if done.iter().all(|it| *it) {
            return Ok(());
        }
    }
}

/// `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key` (RFC 6455, 4.2.2).
fn accept_key(key: &[u8]) -> String {
    let digest = Sha1::new()
        .chain_update(key)
        .chain_update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64_STANDARD.encode(digest.finalize())
}
