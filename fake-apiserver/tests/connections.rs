//! WebSockets: watches, and connections to Pods with a script, with the channels of each protocol.

use std::net::Ipv4Addr;

use fake_apiserver::{ApiServer, ExecOutput, PodScript, PodSelector, Serving, Worker};
use futures::{SinkExt as _, StreamExt as _};
use http::Request;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::protocol::Message;
use tokio_tungstenite::tungstenite::{Error, handshake::client::generate_key};
use tokio_tungstenite::{WebSocketStream, client_async};

/// Returns a server with a running Pod `db`. Its script handles commands and connections to ports.
fn scripted() -> ApiServer {
    let server = ApiServer::builder().workers([Worker::Kubelet]).start();
    let script = PodScript::default()
        .logs("ready\n")
        .on_exec(
            |command, stdin| match command.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                ["pg_isready"] => ExecOutput::stdout("no response\n")
                    .with_stderr("why not\n")
                    .exits_with(2),
                ["cat"] if !stdin.has_ended => ExecOutput::awaits_stdin(),
                ["cat"] => ExecOutput::stdout(stdin.bytes),
                ["cat", "-u"] => ExecOutput::stdout(stdin.unseen()).and_awaits_stdin(),
                ["head", "-1"] if !stdin.bytes.contains(&b'\n') && !stdin.has_ended => ExecOutput::awaits_stdin(),
                ["head", "-1"] => ExecOutput::stdout(stdin.bytes),
                _ => ExecOutput::default().exits_with(127),
            },
        )
        .port(8080, |received| (received == b"GET /").then(|| b"hello".to_vec()))
        .port(5432, |received| {
            received.ends_with(b"?").then(|| [received, b"!"].concat())
        });
    server.kubelet().script(PodSelector::all(), script);
    server.load([running("db")]).expect("the object is a Pod");
    server
}

fn running(name: &str) -> Value {
    let state = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": "node-0", "containers": [{"name": "main", "image": "i"}]},
        "status": {
            "phase": "Running", "startTime": "2026-01-01T00:00:00Z",
            "containerStatuses": [{"name": "main", "image": "i", "ready": true, "state": state}],
        },
    })
}

async fn serve(server: &ApiServer) -> Serving {
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    server.serve(address).await.expect("loopback has a free port")
}

/// Builds a request to upgrade to a WebSocket.
fn upgrade(path: &str, host: &str, protocols: &str) -> Request<()> {
    let mut request = Request::get(format!("ws://{host}{path}"))
        .header("Host", host)
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", generate_key());
    if !protocols.is_empty() {
        request = request.header("Sec-WebSocket-Protocol", protocols);
    }
    request.body(()).expect("the request is valid")
}

type Socket = WebSocketStream<TcpStream>;

async fn connect(serving: &Serving, path: &str, protocols: &str) -> Result<(Socket, String), Error> {
    let stream = TcpStream::connect(serving.addr())
        .await
        .expect("the server accepts connections");
    let (socket, response) = client_async(upgrade(path, &serving.addr().to_string(), protocols), stream).await?;
    let protocol = response.headers().get("sec-websocket-protocol");
    let protocol = protocol.and_then(|it| it.to_str().ok()).unwrap_or_default().to_owned();
    Ok((socket, protocol))
}

/// Returns the status and the body of a refused connection.
async fn refusal(serving: &Serving, path: &str, protocols: &str) -> (u16, String) {
    match connect(serving, path, protocols).await {
        Err(Error::Http(response)) => {
            let body = response.body().clone().unwrap_or_default();
            let status: Value = serde_json::from_slice(&body).unwrap_or_default();
            let text = status["message"].as_str().unwrap_or_default().to_owned();
            (response.status().as_u16(), text)
        }
        other => panic!("the connection is not refused: {other:?}"),
    }
}

/// Collects the data of each channel until the server closes the connection.
async fn channels(socket: &mut Socket) -> Vec<(u8, Vec<u8>)> {
    let mut all: Vec<(u8, Vec<u8>)> = Vec::new();
    while let Some(message) = socket.next().await {
        let bytes = match message.expect("the server closes the connection cleanly") {
            Message::Binary(bytes) => bytes.to_vec(),
            Message::Text(text) => text.as_bytes().to_vec(),
            _ => continue,
        };
        let (channel, rest) = bytes.split_first().expect("a message has a channel");
        match all.iter_mut().find(|(it, _)| it == channel) {
            Some((_, known)) => known.extend(rest),
            None => all.push((*channel, rest.to_vec())),
        }
    }
    all.sort();
    all
}

fn text(channels: &[(u8, Vec<u8>)], channel: u8) -> String {
    let found = channels.iter().find(|(it, _)| *it == channel);
    String::from_utf8_lossy(&found.map(|it| it.1.clone()).unwrap_or_default()).into_owned()
}

const EXEC: &str = "/api/v1/namespaces/default/pods/db/exec";

#[tokio::test]
async fn each_watch_event_is_a_websocket_message() {
    let server = ApiServer::start();
    let serving = serve(&server).await;
    let path = "/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=0";
    let (mut socket, _) = connect(&serving, path, "").await.expect("the connection is upgraded");
    for name in ["a", "b"] {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        server.load([map]).expect("the object is a ConfigMap");
        let Some(Ok(Message::Text(event))) = socket.next().await else {
            panic!("the event is not a text message");
        };
        let event: Value = serde_json::from_str(&event).expect("the text is valid JSON");
        assert_eq!(event["type"], "ADDED");
        assert_eq!(event["object"]["metadata"]["name"], name);
    }
    assert_eq!(server.watches().len(), 1);
    socket.close(None).await.expect("the connection is open");
    while socket.next().await.is_some() {}
    // The server detects the end of the connection at the next event, or when the socket reports it.
    while !server.watches().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn watch_that_ends_closes_the_websocket() {
    let server = ApiServer::start();
    let serving = serve(&server).await;
    let (mut socket, _) = connect(&serving, "/api/v1/pods?watch=true", "")
        .await
        .expect("the connection is upgraded");
    for watch in server.watches() {
        watch.end();
    }
    let end = socket.next().await;
    assert!(matches!(end, Some(Ok(Message::Close(_))) | None), "{end:?}");
}

#[rstest]
#[case::newest_protocol("v5.channel.k8s.io, v4.channel.k8s.io", "v5.channel.k8s.io")]
#[case::older_protocol("v4.channel.k8s.io", "v4.channel.k8s.io")]
#[case::oldest_protocol("unknown, channel.k8s.io", "channel.k8s.io")]
#[tokio::test]
async fn command_returns_output_and_exit_code(#[case] asked: &str, #[case] chosen: &str) {
    let server = scripted();
    let serving = serve(&server).await;
    let path = format!("{EXEC}?command=pg_isready&stdout=true&stderr=true&container=main");
    let (mut socket, protocol) = connect(&serving, &path, asked)
        .await
        .expect("the connection is upgraded");
    assert_eq!(protocol, chosen);
    let channels = channels(&mut socket).await;
    assert_eq!(text(&channels, 1), "no response\n");
    assert_eq!(text(&channels, 2), "why not\n");
    let end = text(&channels, 3);
    if chosen == "channel.k8s.io" {
        assert_eq!(end, "command terminated with non-zero exit code: exit status 2");
        return;
    }
    let status: Value = serde_json::from_str(&end).expect("the value is a Status");
    assert_eq!(status["reason"], "NonZeroExitCode");
    assert_eq!(
        status["details"]["causes"],
        json!([{"reason": "ExitCode", "message": "2"}])
    );
}

#[tokio::test]
async fn standard_input_ends_when_its_channel_is_closed() {
    let server = scripted();
    let serving = serve(&server).await;
    let path = format!("{EXEC}?command=cat&stdin=true&stdout=true");
    let (mut socket, _) = connect(&serving, &path, "v5.channel.k8s.io")
        .await
        .expect("the connection is upgraded");
    let large = vec![b'x'; 100_000];
    for message in [
        [&[0][..], &large].concat(),
        b"\x00!".to_vec(),
        vec![4, b'{', b'}'],
        vec![255, 0],
    ] {
        socket
            .send(Message::binary(message))
            .await
            .expect("the connection is open");
    }
    let channels = channels(&mut socket).await;
    assert_eq!(text(&channels, 1).len(), 100_001);
    assert_eq!(text(&channels, 3), r#"{"metadata":{},"status":"Success"}"#);
}

#[tokio::test]
async fn command_may_write_before_its_input_has_ended() {
    let server = scripted();
    let serving = serve(&server).await;
    let path = format!("{EXEC}?command=head&command=-1&stdin=true&stdout=true");
    let (mut socket, _) = connect(&serving, &path, "v4.base64.channel.k8s.io")
        .await
        .expect("the connection is upgraded");
    // `line\n` on channel 0.
    socket
        .send(Message::text("0bGluZQo="))
        .await
        .expect("the connection is open");
    let channels = channels(&mut socket).await;
    assert_eq!(text(&channels, b'1'), "bGluZQo=");
}

/// Before v5 a client cannot signal the end of its input, so it waits until its input has been echoed.
#[tokio::test]
async fn command_writes_while_input_arrives() {
    let serving = serve(&scripted()).await;
    let path = format!("{EXEC}?command=cat&command=-u&stdin=true&stdout=true");
    let (mut socket, _) = connect(&serving, &path, "v4.channel.k8s.io")
        .await
        .expect("the connection is upgraded");
    let opened = socket
        .next()
        .await
        .expect("the connection is open")
        .expect("the connection is open");
    assert_eq!(&opened.into_data()[..], b"\x01");
    for line in ["one\n", "two\n"] {
        let sent = Message::binary([b"\0", line.as_bytes()].concat());
        socket.send(sent).await.expect("the connection is open");
        let echoed = socket
            .next()
            .await
            .expect("the connection is open")
            .expect("the connection is open");
        assert_eq!(echoed.into_data()[..], [b"\x01", line.as_bytes()].concat());
    }
}

#[tokio::test]
async fn attach_returns_the_logs() {
    let server = scripted();
    let serving = serve(&server).await;
    let path = "/api/v1/namespaces/default/pods/db/attach?stdout=true";
    let (mut socket, _) = connect(&serving, path, "v4.channel.k8s.io")
        .await
        .expect("the connection is upgraded");
    assert_eq!(text(&channels(&mut socket).await, 1), "ready\n");
}

#[tokio::test]
async fn streams_of_forwarded_ports_begin_with_the_port_number() {
    let server = scripted();
    let serving = serve(&server).await;
    let path = "/api/v1/namespaces/default/pods/db/portforward?ports=5432,81";
    let (mut socket, _) = connect(&serving, path, "v4.channel.k8s.io")
        .await
        .expect("the connection is upgraded");
    for bytes in [&b"\x00who"[..], b"\x00 are you?"] {
        socket
            .send(Message::binary(bytes.to_vec()))
            .await
            .expect("the connection is open");
    }
    let mut seen = Vec::new();
    while seen.len() < 6 {
        let Some(Ok(Message::Binary(bytes))) = socket.next().await else {
            panic!("the socket does not deliver a binary message")
        };
        seen.push(bytes.to_vec());
    }
    let refused = [&[3][..], b"an error occurred forwarding 81: connection refused"].concat();
    let expected: [&[u8]; 6] = [
        &[0, 0x38, 0x15],
        &[1, 0x38, 0x15],
        &[2, 81, 0],
        &[3, 81, 0],
        &refused,
        b"\x00who are you?!",
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn channel_numbers_start_again_after_128_ports() {
    let server = scripted();
    let serving = serve(&server).await;
    let ports = vec!["5432"; 129].join(",");
    let path = format!("/api/v1/namespaces/default/pods/db/portforward?ports={ports}");
    let (mut socket, _) = connect(&serving, &path, "v4.channel.k8s.io")
        .await
        .expect("the connection is upgraded");
    for channel in (0..=u8::MAX).chain(0..=1) {
        let Some(Ok(Message::Binary(bytes))) = socket.next().await else {
            panic!("the socket does not deliver a binary message")
        };
        assert_eq!(bytes[..], [channel, 0x38, 0x15]);
    }
    socket
        .send(Message::binary(b"\xfewho?".to_vec()))
        .await
        .expect("the connection is open");
    let Some(Ok(Message::Binary(bytes))) = socket.next().await else {
        panic!("the socket does not deliver a binary message")
    };
    assert_eq!(bytes[..], b"\xfewho?!"[..]);
}

#[rstest]
#[case::unknown_protocol(
    "db/exec?command=a&stdout=true",
    "v9.channel.k8s.io",
    400,
    "unable to negotiate protocol"
)]
#[case::missing_stream("db/exec?command=a", "", 400, "you must specify at least 1 of stdin, stdout, stderr")]
#[case::missing_command(
    "db/exec?stdout=true",
    "",
    400,
    "you must specify at least 1 command for the container"
)]
#[case::unknown_container("db/exec?stdout=true&command=a&container=x", "", 400, "container x is not valid")]
#[case::missing_pod("x/exec?stdout=true&command=a", "", 404, "pods \"x\" not found")]
#[case::invalid_port(
    "db/portforward?ports=x",
    "",
    400,
    "cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax"
)]
#[case::container_is_not_running("idle/exec?stdout=true&command=a", "", 500, "container not found (\"main\")")]
#[tokio::test]
async fn failed_connections_report_the_reason(
    #[case] path: &str,
    #[case] protocols: &str,
    #[case] code: u16,
    #[case] why: &str,
) {
    let server = scripted();
    server.kubelet().script(PodSelector::named("default", "idle"), {
        let idle = PodScript::default().starts_after(std::time::Duration::from_secs(3600));
        idle.on_exec(|_, _| ExecOutput::default())
    });
    let mut idle = running("idle");
    idle["status"] = json!({"phase": "Pending"});
    server.load([idle]).expect("the object is a Pod");
    let serving = serve(&server).await;
    let path = format!("/api/v1/namespaces/default/pods/{path}");
    let (found, text) = refusal(&serving, &path, protocols).await;
    assert_eq!(found, code, "{text}");
    assert!(text.contains(why), "{text}");
}

#[rstest]
#[case::older_spdy_version("SPDY/2", 501, "commands are served over SPDY/3.1")]
#[case::missing_upgrade("", 400, "Upgrade request required")]
#[tokio::test]
async fn unsupported_or_missing_upgrade_is_refused(#[case] protocol: &str, #[case] code: u16, #[case] why: &str) {
    let request = Request::post(format!("{EXEC}?command=a&stdout=true"))
        .header("Connection", "Upgrade")
        .header("Upgrade", protocol)
        .body("")
        .expect("the request is valid");
    let answer = scripted().call(request).await;
    assert_eq!(answer.status(), code);
    assert!(String::from_utf8_lossy(answer.body()).contains(why));
}

/// Returns the bytes that kubectl sends for GET `/` on port 8080: the streams of a connection, and data.
fn port_forward() -> Vec<u8> {
    let digits = include_str!("data/port_forward.hex").lines().collect::<String>();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("the text consists of digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// The end of the response: the data, and the end of both streams.
const FORWARDED: &[u8] = b"\0\0\0\x03\0\0\0\x05hello\0\0\0\x03\x01\0\0\0\0\0\0\x01\x01\0\0\0";

const FORWARD: &str = "/api/v1/namespaces/default/pods/db/portforward";

#[tokio::test]
async fn port_is_forwarded_in_spdy_within_a_websocket() {
    let serving = serve(&scripted()).await;
    let protocol = "SPDY/3.1+portforward.k8s.io";
    let (mut socket, chosen) = connect(&serving, FORWARD, protocol)
        .await
        .expect("the connection is upgraded");
    assert_eq!(chosen, protocol);
    socket
        .send(Message::binary(port_forward()))
        .await
        .expect("the connection is open");
    let answer = socket
        .next()
        .await
        .expect("the server answers")
        .expect("the socket delivers a message")
        .into_data();
    assert!(answer.ends_with(FORWARDED), "{answer:?}");
    // The tunnel remains open for more connections, and ends if the client violates the protocol.
    socket
        .send(Message::binary(vec![0xff; 8]))
        .await
        .expect("the connection is open");
    assert!(matches!(socket.next().await, Some(Ok(Message::Close(Some(_))))));
}

#[rstest]
#[case::header_from_kubectl("X-Stream-Protocol-Version: portforward.k8s.io\r\n", "101")]
#[case::without_a_header("", "101")]
#[case::unsupported_protocol("X-Stream-Protocol-Version: v4.channel.k8s.io\r\n", "403")]
#[tokio::test]
async fn port_is_forwarded_in_spdy(#[case] version: &str, #[case] code: &str) {
    let serving = serve(&scripted()).await;
    let host = serving.addr();
    let mut stream = TcpStream::connect(host).await.expect("the server accepts connections");
    let head = format!("POST {FORWARD} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n{version}");
    let head = format!("{head}Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("the connection is open");
    let mut answer = Vec::new();
    while !answer.windows(4).any(|it| it == b"\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut answer).await.expect("the connection is open"), 0);
    }
    let head = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    assert!(head.starts_with(&format!("http/1.1 {code}")), "{head}");
    if code != "101" {
        return;
    }
    assert!(head.contains("upgrade: spdy/3.1") && head.contains("x-stream-protocol-version: portforward.k8s.io"));
    stream.write_all(&port_forward()).await.expect("the connection is open");
    while !answer.ends_with(FORWARDED) {
        assert_ne!(
            stream.read_buf(&mut answer).await.expect("the connection is open"),
            0,
            "{answer:?}"
        );
    }
}

#[rstest]
#[case::no_protocol("", "", &[b"".as_slice(), b"ready\n"])]
#[case::binary("binary.k8s.io", "binary.k8s.io", &[b"".as_slice(), b"ready\n"])]
#[case::base64("base64.binary.k8s.io, binary.k8s.io", "base64.binary.k8s.io", &[b"".as_slice(), b"cmVhZHkK"])]
#[tokio::test]
async fn logs_are_sent_over_a_websocket(#[case] asked: &str, #[case] protocol: &str, #[case] want: &[&[u8]]) {
    let serving = serve(&scripted()).await;
    let path = "/api/v1/namespaces/default/pods/db/log";
    let (mut socket, got) = connect(&serving, path, asked)
        .await
        .expect("the connection is upgraded");
    assert_eq!(got, protocol);
    let mut messages = Vec::new();
    while let Some(Ok(message)) = socket.next().await {
        match message {
            Message::Binary(bytes) => messages.push(bytes.to_vec()),
            Message::Text(text) => messages.push(text.as_bytes().to_vec()),
            _ => {}
        }
    }
    assert_eq!(messages, want);
    assert_eq!(refusal(&serving, path, "v4.channel.k8s.io").await.0, 400);
}

#[tokio::test]
async fn exec_and_port_forward_to_pods_without_a_script_are_refused() {
    let server = ApiServer::builder().workers([Worker::Kubelet]).start();
    server.load([running("db")]).expect("the object is a Pod");
    let serving = serve(&server).await;
    for path in ["exec?command=a&stdout=true", "portforward?ports=80"] {
        let path = format!("/api/v1/namespaces/default/pods/db/{path}");
        assert_eq!(refusal(&serving, &path, "v4.channel.k8s.io").await.0, 501, "{path}");
    }
    let path = "/api/v1/namespaces/default/pods/db/attach?stdout=true";
    let (mut socket, _) = connect(&serving, path, "v4.channel.k8s.io")
        .await
        .expect("the connection is upgraded");
    let end = br#"{"metadata":{},"status":"Success"}"#;
    assert_eq!(channels(&mut socket).await, [(1, Vec::new()), (3, end.to_vec())]);
}

#[tokio::test]
async fn token_can_be_sent_as_a_websocket_subprotocol() {
    let server = ApiServer::builder()
        .authorization(fake_apiserver::Authorization::Rbac)
        .anonymous(fake_apiserver::Anonymous::Refused)
        .token("s3cret", "root", ["system:masters"])
        .start();
    let serving = serve(&server).await;
    let path = "/api/v1/pods?watch=true";
    assert_eq!(refusal(&serving, path, "").await.0, 401);
    // The encoded token is `s3cret`.
    let protocols = "base64url.bearer.authorization.k8s.io.czNjcmV0, base64.binary.k8s.io";
    let (_socket, protocol) = connect(&serving, path, protocols)
        .await
        .expect("the connection is upgraded");
    assert_eq!(protocol, "base64.binary.k8s.io");
}

/// A client in this process has no socket, but its connections can be upgraded.
#[cfg(feature = "client")]
#[tokio::test]
async fn in_process_client_can_upgrade_connections() {
    use tower::Service as _;

    let server = scripted();
    let mut client = server.client_service("tests");
    let path = format!("{EXEC}?command=pg_isready&stdout=true");
    let request = upgrade(&path, "localhost", "v5.channel.k8s.io").map(|()| kube::client::Body::empty());
    let request = {
        let (mut parts, body) = request.into_parts();
        parts.uri = path.parse().expect("the path is valid");
        Request::from_parts(parts, body)
    };
    let response = client.call(request).await.expect("the request is answered");
    assert_eq!(response.status(), http::StatusCode::SWITCHING_PROTOCOLS);
    let upgraded = hyper::upgrade::on(response).await.expect("the connection is upgraded");
    let stream = hyper_util::rt::TokioIo::new(upgraded);
    let role = tokio_tungstenite::tungstenite::protocol::Role::Client;
    let mut socket = WebSocketStream::from_raw_socket(stream, role, None).await;
    let mut text = Vec::new();
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Binary(bytes) = message {
            text.extend(bytes);
        }
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(
        text.contains("no response\n") && text.contains("NonZeroExitCode"),
        "{text}"
    );
    assert!(
        server
            .journal()
            .entries()
            .iter()
            .any(|entry| format!("{entry:?}").contains("tests"))
    );
}
