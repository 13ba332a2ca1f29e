//! `exec` and `attach` over SPDY/3.1, with a client that writes the frames itself.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use fake_apiserver::{ApiServer, ExecOutput, PodScript, PodSelector, Serving, Worker};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const FIN: u8 = 1;
const V4: &str = "v4.channel.k8s.io";

/// A client with its open streams.
struct Client {
    stream: TcpStream,
    streams: Vec<&'static str>,
    received: Vec<u8>,
}

impl Client {
    /// Requests SPDY. The error is the response of the server.
    async fn connect(serving: &Serving, path: &str, protocols: &[&str]) -> Result<(Self, String), String> {
        let host = serving.addr();
        let mut stream = TcpStream::connect(host).await.expect("the server accepts connections");
        let protocols: String = protocols
            .iter()
            .map(|it| format!("X-Stream-Protocol-Version: {it}\r\n"))
            .collect();
        let head = format!(
            "POST /api/v1/namespaces/default/pods/db/{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n{protocols}\
             Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("the connection is open");
        let mut received = Vec::new();
        let end = loop {
            if let Some(at) = received.windows(4).position(|it| it == b"\r\n\r\n") {
                break at + 4;
            }
            assert_ne!(stream.read_buf(&mut received).await.expect("the connection is open"), 0);
        };
        let head = String::from_utf8_lossy(&received[..end]).into_owned();
        received.drain(..end);
        if !head.starts_with("HTTP/1.1 101") {
            return Err(head);
        }
        let mut lines = head.lines().filter_map(|it| it.split_once(": "));
        let protocol = lines.find(|(name, _)| name.eq_ignore_ascii_case("x-stream-protocol-version"));
        let protocol = protocol.map_or("", |(_, value)| value).to_owned();
        let streams = Vec::new();
        Ok((
            Self {
                stream,
                streams,
                received,
            },
            protocol,
        ))
    }

    /// Opens a stream, with its header in stored blocks of the shared zlib stream.
    async fn open(&mut self, kind: &'static str) {
        let text = |text: &str| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
        let headers = [&1_u32.to_be_bytes()[..], &text("streamtype"), &text(kind)].concat();
        let length = headers.len() as u16;
        let mut block = match self.streams.is_empty() {
            true => vec![0x78, 0x01],
            false => Vec::new(),
        };
        block.push(0);
        block.extend(length.to_le_bytes());
        block.extend((!length).to_le_bytes());
        block.extend(headers);
        block.extend([0, 0, 0, 0xff, 0xff]);
        self.streams.push(kind);
        let body = [&self.id(kind).to_be_bytes()[..], &[0; 6], &block].concat();
        self.frame([0x80, 0x03, 0, 1], 0, &body).await;
    }

    fn id(&self, kind: &str) -> u32 {
        let at = self.streams.iter().position(|it| *it == kind);
        at.map(|at| 2 * at as u32 + 1).expect("the stream is open")
    }

    async fn send(&mut self, kind: &str, flags: u8, bytes: &[u8]) {
        self.frame(self.id(kind).to_be_bytes(), flags, bytes).await;
    }

    async fn frame(&mut self, start: [u8; 4], flags: u8, body: &[u8]) {
        let length = (body.len() as u32).to_be_bytes();
        let frame = [&start[..], &[flags], &length[1..], body].concat();
        self.stream.write_all(&frame).await.expect("the connection is open");
    }

    /// Reads data until all streams have ended, or `until` returns `true`.
    async fn read(&mut self, until: impl Fn(&BTreeMap<&str, String>) -> bool) -> BTreeMap<&'static str, String> {
        let (mut found, mut ended) = (BTreeMap::new(), 0);
        loop {
            while let Some((start, flags, body)) = self.next_frame() {
                if start[0] & 0x80 != 0 {
                    assert_eq!(start[3], 2, "the frame is the reply to an opened stream");
                    continue;
                }
                let at = (u32::from_be_bytes(start) - 1) / 2;
                let kind = self.streams[at as usize];
                *found.entry(kind).or_insert_with(String::new) += &String::from_utf8_lossy(&body);
                ended += usize::from(flags == FIN);
            }
            if ended == self.streams.len() || until(&found) {
                found.retain(|_, text| !text.is_empty());
                return found;
            }
            assert_ne!(
                self.stream
                    .read_buf(&mut self.received)
                    .await
                    .expect("the connection is open"),
                0
            );
        }
    }

    fn next_frame(&mut self) -> Option<([u8; 4], u8, Vec<u8>)> {
        let head = *self.received.first_chunk::<8>()?;
        let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        let frame: Vec<u8> = match self.received.len() >= 8 + length {
            true => self.received.drain(..8 + length).collect(),
            false => return None,
        };
        Some(([head[0], head[1], head[2], head[3]], head[4], frame[8..].to_vec()))
    }
}

/// Returns a server with a running Pod `db`.
async fn scripted(script: PodScript) -> (ApiServer, Serving) {
    let server = ApiServer::builder().workers([Worker::Kubelet]).start();
    server.kubelet().script(PodSelector::all(), script);
    let state = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db"},
        "spec": {"nodeName": "node-0", "containers": [{"name": "main", "image": "i"}]},
        "status": {
            "phase": "Running", "startTime": "2026-01-01T00:00:00Z",
            "containerStatuses": [{"name": "main", "image": "i", "ready": true, "state": state}],
        },
    });
    server.load([pod]).expect("the object is a Pod");
    let serving = server.serve((Ipv4Addr::LOCALHOST, 0).into()).await;
    (server, serving.expect("loopback has a free port"))
}

fn shell() -> PodScript {
    PodScript::default().logs("ready\n").on_exec(|command, stdin| {
        match command.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["cat"] => ExecOutput::stdout(stdin.unseen()).and_awaits_stdin(),
            ["fail"] => ExecOutput::stdout("out\n").with_stderr("err\n").exits_with(3),
            _ => ExecOutput::stdout("done\n"),
        }
    })
}

const FAILED: &str = "command terminated with non-zero exit code: exit status 3";

#[rstest]
#[case::newest_protocol(&[V4, "channel.k8s.io"], V4)]
#[case::first_known_protocol(&["v5.channel.k8s.io", "v3.channel.k8s.io"], "v3.channel.k8s.io")]
#[case::oldest_protocol(&["channel.k8s.io"], "channel.k8s.io")]
#[case::no_protocol_header(&[], "")]
#[tokio::test]
async fn command_reports_its_output_and_exit_code(#[case] asked: &[&str], #[case] protocol: &str) {
    let (_server, serving) = scripted(shell()).await;
    let path = "exec?command=fail&stdout=true&stderr=true";
    let (mut client, got) = Client::connect(&serving, path, asked)
        .await
        .expect("the connection is upgraded");
    assert_eq!(got, protocol);
    for kind in ["error", "stdout", "stderr"] {
        client.open(kind).await;
    }
    let found = client.read(|_| false).await;
    assert_eq!((found["stdout"].as_str(), found["stderr"].as_str()), ("out\n", "err\n"));
    let end = &found["error"];
    if protocol != V4 {
        assert_eq!(end, FAILED);
        return;
    }
    let status: Value = serde_json::from_str(end).expect("the value is a Status");
    assert_eq!(status["message"], FAILED);
    assert_eq!(
        status["details"]["causes"],
        json!([{"reason": "ExitCode", "message": "3"}])
    );
}

#[tokio::test]
async fn standard_input_is_delivered_and_closed() {
    let (_server, serving) = scripted(shell()).await;
    let path = "exec?command=cat&stdin=true&stdout=true";
    let (mut client, _) = Client::connect(&serving, path, &[V4])
        .await
        .expect("the connection is upgraded");
    for kind in ["error", "stdin", "stdout"] {
        client.open(kind).await;
    }
    client.send("stdin", 0, b"one\n").await;
    let heard = |text: &'static str| move |it: &BTreeMap<&str, String>| it.get("stdout").is_some_and(|it| it == text);
    client.read(heard("one\n")).await;
    client.send("stdin", 0, b"two\n").await;
    client.send("stdin", FIN, b"").await;
    let found = client.read(|_| false).await;
    assert_eq!(found["stdout"], "two\n");
    assert!(found["error"].contains("Success"), "{found:?}");
}

#[rstest]
#[case::script_with_logs(shell(), Some("ready\n"))]
#[case::no_script(PodScript::default(), None)]
#[tokio::test]
async fn attach_ends_after_the_logs(#[case] script: PodScript, #[case] logs: Option<&str>) {
    let (_server, serving) = scripted(script).await;
    let path = "attach?stdin=true&stdout=true&tty=true&stderr=true";
    let (mut client, _) = Client::connect(&serving, path, &[V4])
        .await
        .expect("the connection is upgraded");
    for kind in ["error", "stdin", "stdout", "resize"] {
        client.open(kind).await;
    }
    let found = client.read(|_| false).await;
    assert_eq!(found.get("stdout").map(String::as_str), logs);
    assert!(found["error"].contains("Success"), "{found:?}");
}

#[rstest]
#[case::unknown_protocol("exec?command=a&stdout=true", &["v9.channel.k8s.io"], "HTTP/1.1 403")]
#[case::port_forward("exec?command=a&stdout=true", &["portforward.k8s.io"], "HTTP/1.1 403")]
#[case::missing_stream("exec?command=a", &[V4], "HTTP/1.1 400")]
#[tokio::test]
async fn unsupported_protocol_or_missing_stream_is_refused(
    #[case] path: &str,
    #[case] asked: &[&str],
    #[case] status: &str,
) {
    let (_server, serving) = scripted(shell()).await;
    let refused = Client::connect(&serving, path, asked).await.map(drop);
    let refused = refused.expect_err("the request is refused");
    assert!(refused.starts_with(status), "{refused}");
}
