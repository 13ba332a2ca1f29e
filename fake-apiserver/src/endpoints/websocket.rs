//! WebSockets: the handshake, watches, and the channels of `exec`, `attach` and `port-forward` (the framing of
//! kube-apiserver's `wsstream` and of `v5.channel.k8s.io`). The three subresources are also supported over SPDY.

mod spdy;

use axum_core::body::Body;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{SinkExt as _, StreamExt as _};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use sha1::{Digest as _, Sha1};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

use super::call::Call;
use super::exit;
use super::upgrade::{BEARER_PROTOCOL, Stream, Upgrade, is_asked_for, words};
use super::watch_protobuf;
use crate::api::status::Status;
use crate::api::streams::{Connection, ExecHandler, ExecOutput, Listening, PortHandler, Stdin, Streams};
use spdy::command::{self, Command, Program};
use spdy::{Service, Session};

/// Maximum number of bytes accepted from standard input or a forwarded port; above it the connection is closed.
const INPUT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Maximum number of bytes sent in one message.
const CHUNK_BYTES: usize = 32 * 1024;

/// Maximum number of bytes of plain text, such as a log, in one message.
const TEXT_CHUNK_BYTES: usize = 2048;

// Channels of `exec` and `attach`.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
/// The v5 channel on which a client closes another channel.
const CLOSE: u8 = 255;

/// The channel subprotocols, newest first. The empty name is for clients that do not request a subprotocol.
const CHANNEL_PROTOCOLS: [&str; 6] = [
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "",
];

/// The protocol of `port-forward`.
const PORT_FORWARD: &str = "portforward.k8s.io";

/// The version of SPDY that transports connections.
const SPDY: &str = "SPDY/3.1";

/// The WebSocket subprotocol for `port-forward` over SPDY.
const TUNNEL_PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";
const STREAM_PROTOCOL_VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// Returns the response 101 and passes the connection to `work`.
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

/// Sends a watch over a WebSocket: each event of `answer` becomes a message.
pub(super) fn watch(call: &Call, answer: Response<Body>) -> Result<Response<Body>, Status> {
    let is_text = answer
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|it| it.to_str().ok())
        .is_none_or(|it| it.starts_with("application/json"));
    // The response confirms the first requested subprotocol, which has no further effect.
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

/// The subprotocols for plain text. The empty name is for clients that do not request a subprotocol.
const TEXT_PROTOCOLS: [&str; 3] = ["", "base64.binary.k8s.io", "binary.k8s.io"];

/// Sends plain text over a WebSocket, after an empty message that keeps the connection alive.
pub(super) fn text(call: &Call, text: String) -> Result<Response<Body>, Status> {
    let protocol = negotiate(call, &TEXT_PROTOCOLS)?;
    switch(call, protocol, move |mut socket| {
        Box::pin(async move {
            let none: &[u8] = &[];
            for chunk in std::iter::once(none).chain(text.as_bytes().chunks(TEXT_CHUNK_BYTES)) {
                let message = match protocol.starts_with("base64") {
                    true => Message::text(BASE64_STANDARD.encode(chunk)),
                    false => Message::binary(chunk.to_vec()),
                };
                if socket.send(message).await.is_err() {
                    return;
                }
            }
            close(socket).await;
        })
    })
}

/// Returns the first subprotocol that the client requests and the server supports.
fn negotiate(call: &Call, known: &[&'static str]) -> Result<&'static str, Status> {
    let mut asked: Vec<&str> = words(&call.parts.headers, &header::SEC_WEBSOCKET_PROTOCOL).collect();
    asked.retain(|it| !it.starts_with(BEARER_PROTOCOL));
    if asked.is_empty() {
        asked.push("");
    }
    let protocol = asked.iter().find_map(|it| known.iter().find(|known| known == &it));
    protocol.copied().ok_or_else(|| {
        let why = format!(
            "unable to negotiate protocol: client supports [{}], server accepts [{}]",
            asked.join(" "),
            known.join(" ").trim()
        );
        Status::bad_request(why)
    })
}

/// Sends the lines of a body, until the body or the connection ends.
async fn send_events(socket: WebSocketStream<Box<dyn Stream>>, mut body: Body, is_text: bool) {
    let (mut sender, mut receiver) = socket.split();
    let mut rest: Vec<u8> = Vec::new();
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            message = receiver.next() => match message {
                // Messages of the client are ignored; the library responds to pings.
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => continue,
            },
        };
        let Some(Ok(frame)) = frame else { break };
        let Ok(data) = frame.into_data() else { continue };
        if !is_text {
            // A frame contains one event. Its length prefix is unnecessary in a message.
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
    // The client may have disconnected.
    let _ = sender.send(normal_end()).await;
}

/// Ways to request SPDY.
enum Spdy {
    /// Inside a WebSocket, like kubectl.
    Tunnel,
    /// Directly after the HTTP upgrade, like kubectl before 1.31.
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

/// Forwards ports over SPDY streams in the messages of a WebSocket.
fn tunnel(call: &Call, listening: Listening) -> Result<Response<Body>, Status> {
    switch(call, TUNNEL_PROTOCOL, move |mut socket| {
        Box::pin(async move {
            let mut session = Session::new(Service::Ports(listening));
            while let Some(Ok(message)) = socket.next().await {
                let Message::Binary(bytes) = message else { continue };
                let Ok(answer) = session.receive(&bytes) else { break };
                if !answer.is_empty() && socket.send(Message::Binary(answer)).await.is_err() {
                    return;
                }
            }
            // The client may have disconnected.
            let _ = socket.send(normal_end()).await;
        })
    })
}

/// Forwards ports, or runs a command, over SPDY directly on the connection.
fn spdy(call: &Call, connection: Connection) -> Result<Response<Body>, Status> {
    let known: &[&'static str] = match connection {
        Connection::Ports(..) => &[PORT_FORWARD],
        Connection::Exec(..) | Connection::Attach(..) => &command::PROTOCOLS,
    };
    let asked: Vec<&str> = words(&call.parts.headers, &STREAM_PROTOCOL_VERSION).collect();
    let protocol = asked
        .iter()
        .find_map(|it| known.iter().copied().find(|known| known == it));
    let protocol = match (protocol, &connection) {
        (Some(protocol), _) => protocol,
        (None, Connection::Ports(..)) if asked.is_empty() => PORT_FORWARD,
        // Old clients do not request a protocol.
        (None, _) if asked.is_empty() => "",
        (None, _) => {
            let (asked, known) = (asked.join(" "), known.join(" "));
            let why = format!("unable to negotiate protocol: client supports [{asked}], server accepts [{known}]");
            return Err(Status::new(403, "Forbidden", why));
        }
    };
    let service = match connection {
        Connection::Ports(_, listening) => Service::Ports(listening),
        Connection::Exec(handler, words, streams) => {
            Service::Command(Command::new(Program::Exec(handler, words), streams, protocol))
        }
        Connection::Attach(text, streams) => Service::Command(Command::new(Program::Output(text), streams, protocol)),
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let answered = response.headers_mut();
    answered.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    answered.insert(header::UPGRADE, HeaderValue::from_static(SPDY));
    if !protocol.is_empty() {
        answered.insert(STREAM_PROTOCOL_VERSION, HeaderValue::from_static(protocol));
    }
    response.extensions_mut().insert(Upgrade::new(|mut stream| {
        Box::pin(async move {
            let (mut session, mut buffer) = (Session::new(service), BytesMut::new());
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

/// Upgrades a request to the protocol that the client requests for a connection to a Pod.
pub(super) fn connect(call: &Call, connection: Connection) -> Result<Response<Body>, Status> {
    let headers = &call.parts.headers;
    let connection = match (asked_for_spdy(headers), connection) {
        (Some(Spdy::Tunnel), Connection::Ports(_, listening)) => return tunnel(call, listening),
        (Some(Spdy::Alone), connection) => return spdy(call, connection),
        (Some(Spdy::Tunnel | Spdy::Other), _) => {
            let why = "commands are served over SPDY/3.1 or over WebSockets with v5.channel.k8s.io, and ports over \
                       SPDY/3.1, also in a WebSocket";
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
    let protocol = negotiate(call, &CHANNEL_PROTOCOLS)?;
    switch(call, protocol, move |socket| {
        Box::pin(async move {
            let mut channels = Channels { socket, protocol };
            // If the client has disconnected, the remaining output is dropped.
            let _ = match connection {
                Connection::Exec(handler, command, streams) => exec(&mut channels, &handler, &command, streams).await,
                Connection::Attach(text, streams) => attach(&mut channels, text, streams).await,
                Connection::Ports(asked, listening) => forward(&mut channels, &asked, &listening).await,
            };
            channels.close().await;
        })
    })
}

/// Returns the close message of a regular end; without it, a client assumes a broken connection.
fn normal_end() -> Message {
    Message::Close(Some(CloseFrame {
        code: CloseCode::Normal,
        reason: Utf8Bytes::default(),
    }))
}

/// Error of a connection: the client has disconnected or violated the protocol.
struct Gone;

/// A WebSocket with messages that begin with a channel number.
struct Channels {
    socket: WebSocketStream<Box<dyn Stream>>,
    protocol: &'static str,
}

impl Channels {
    fn is_base64(&self) -> bool {
        self.protocol.contains("base64")
    }

    /// Sends bytes on a channel. An empty slice is also sent as a message.
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

    /// Returns the channel and the bytes of the next message.
    async fn receive(&mut self) -> Result<(u8, Bytes), Gone> {
        loop {
            let bytes: Bytes = match self.socket.next().await {
                Some(Ok(Message::Binary(bytes))) => bytes,
                Some(Ok(Message::Text(text))) => text.into(),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Gone),
            };
            // An empty message is a keep-alive.
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

    /// Sends the exit code of a command.
    async fn end(&mut self, exit_code: i32) -> Result<(), Gone> {
        match (self.protocol.starts_with('v'), exit_code) {
            (true, _) => self.send(ERROR, exit::status(exit_code).as_bytes()).await,
            // Before v4, only failed commands report their exit code, as text.
            (false, 0) => Ok(()),
            (false, _) => self.send(ERROR, exit::failure(exit_code).as_bytes()).await,
        }
    }

    async fn close(self) {
        close(self.socket).await;
    }
}

/// Closes the connection, and waits for the client's close message.
async fn close(mut socket: WebSocketStream<Box<dyn Stream>>) {
    if socket.send(normal_end()).await.is_ok() {
        while let Some(Ok(_)) = socket.next().await {}
    }
}

/// Signals that the connection is established: as in kube-apiserver, with an empty message on the lowest channel that
/// the server writes to.
async fn open(channels: &mut Channels, streams: Streams) -> Result<(), Gone> {
    let first = match streams {
        Streams { stdout: true, .. } => STDOUT,
        Streams { stderr: true, .. } => STDERR,
        _ => ERROR,
    };
    channels.send(first, &[]).await
}

/// Runs a command. The handler is called at the start, and again whenever more input has arrived.
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
            // The terminal size is ignored.
            _ => {}
        }
        if bytes.len() > INPUT_BYTES_MAX {
            return Err(Gone);
        }
    }
}

/// Sends the output of a container.
async fn attach(channels: &mut Channels, text: String, streams: Streams) -> Result<(), Gone> {
    open(channels, streams).await?;
    if streams.stdout && !text.is_empty() {
        channels.send(STDOUT, text.as_bytes()).await?;
    }
    channels.end(0).await
}

/// Forwards ports. Each port has a data channel and an error channel, in the order of the request. Both start with the
/// port number. As in the kubelet, the numbers of channels start again at 0 after 128 ports, and data for these
/// channels belongs to the first 128 ports.
async fn forward(channels: &mut Channels, asked: &[u16], listening: &Listening) -> Result<(), Gone> {
    let ports: Vec<(u16, Option<&PortHandler>)> = asked.iter().map(|it| (*it, listening.get(it))).collect();
    let mut received: Vec<Vec<u8>> = vec![Vec::new(); ports.len()];
    let mut done = vec![false; ports.len()];
    for (number, (port, handler)) in (0..=u8::MAX).step_by(2).cycle().zip(&ports) {
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

/// Computes `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key` (RFC 6455, 4.2.2).
fn accept_key(key: &[u8]) -> String {
    let digest = Sha1::new()
        .chain_update(key)
        .chain_update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64_STANDARD.encode(digest.finalize())
}
