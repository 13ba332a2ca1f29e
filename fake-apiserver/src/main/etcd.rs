//! A replacement for `etcd`, for tools that start a control plane: reports that it is healthy, and exits on a signal.
//!
//! The API server keeps its objects itself, so this program stores nothing and does not implement etcd's protocol.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::args::address;
use crate::interruption::interruption;

/// Time limit for a request.
const REQUEST_BOUND: Duration = Duration::from_secs(2);

/// Maximum length of a request, in bytes.
const REQUEST_BYTES: usize = 16 * 1024;

/// Replacement for etcd in a fake control plane: serves /health and /version, and stores nothing
///
/// The fake kube-apiserver keeps its objects itself. The supported options are the options that tools pass to etcd when
/// they start a control plane; other options are refused.
#[derive(Debug, Parser)]
#[command(name = "etcd", version, args_override_self = true)]
pub(crate) struct Args {
    /// URLs at which /health and /version are served, separated by commas; plain HTTP
    #[arg(long, value_name = "URLS", default_value = "http://localhost:2379", value_delimiter = ',', value_parser = url)]
    listen_client_urls: Vec<SocketAddr>,

    /// URLs advertised to clients; ignored, because there are no clients
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    advertise_client_urls: Vec<String>,

    /// URLs for other members; ignored, because there are no other members
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    listen_peer_urls: Vec<String>,

    /// URLs advertised to other members; ignored
    #[arg(long, value_name = "URLS", value_delimiter = ',')]
    initial_advertise_peer_urls: Vec<String>,

    /// Members of the cluster; ignored
    #[arg(long, value_name = "NAMES=URLS", value_delimiter = ',')]
    initial_cluster: Vec<String>,

    /// Data directory; nothing is written to it
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,

    /// Directory of the write-ahead log; nothing is written to it
    #[arg(long, value_name = "DIR")]
    wal_dir: Option<String>,

    /// Name of the member; ignored
    #[arg(long, value_name = "NAME", default_value = "default")]
    name: String,

    /// Do not sync to disk; ignored, because nothing is written
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    unsafe_no_fsync: bool,

    /// Log level; ignored, because nothing is logged
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: String,

    /// Exit when the process that started it exits
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true")]
    exit_with_parent: bool,
}

/// Parses the arguments. Like Go's package `flag`, accepts flags with one or two hyphens, because some tools pass
/// `-data-dir`.
pub(crate) fn parse(args: Vec<OsString>) -> Args {
    Args::parse_from(args.into_iter().map(|arg| match arg.to_str() {
        Some(text) if text.len() > 2 && text.starts_with('-') && !text.starts_with("--") => format!("-{text}").into(),
        Some(_) | None => arg,
    }))
}

/// Parses an `http://` URL, and returns its address.
fn url(text: &str) -> Result<SocketAddr, String> {
    let rest = text.strip_prefix("http://").ok_or("only http:// is supported")?;
    address(rest.trim_end_matches('/'))
}

/// Responds to requests until a signal arrives or the parent process ends.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(args: &Args) -> Result<(), String> {
    let interrupted = interruption(args.exit_with_parent)?;
    let mut served = Vec::new();
    for address in &args.listen_client_urls {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|err| format!("cannot listen on {address}: {err}"))?;
        served.push(Box::pin(serve(listener)));
    }
    tokio::select! {
        () = interrupted => {}
        _ = futures::future::select_all(served) => {}
    }
    Ok(())
}

/// Handles connections one after the other, because each is short.
async fn serve(listener: TcpListener) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            // A slow client is disconnected. Errors after a disconnect are ignored.
            let _ = timeout(REQUEST_BOUND, answer(stream)).await;
        }
    }
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|it| it == b"\r\n\r\n") && request.len() < REQUEST_BYTES {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let path = String::from_utf8_lossy(&request);
    let path = path.split(' ').nth(1).unwrap_or_default();
    let (status, body) = match path.split('?').next().unwrap_or_default() {
        "/health" | "/livez" | "/readyz" => ("200 OK", r#"{"health":"true","reason":""}"#),
        "/version" => (
            "200 OK",
            r#"{"etcdserver":"3.6.5","etcdcluster":"3.6.0","storage":"3.6.0"}"#,
        ),
        _ => (
            "404 Not Found",
            "this etcd does not store anything: the API server keeps objects in memory\n",
        ),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    stream.shutdown().await
}
