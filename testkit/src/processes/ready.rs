//! Checks the readiness of a process by a URL that it serves.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit of one request.
const BOUND: Duration = Duration::from_secs(2);

/// Maximum number of response bytes that are read.
const HEAD: u64 = 64;

/// Returns `true` if the response of an `http://` URL has a status below 400.
pub(crate) async fn is_answering(url: &str) -> bool {
    timeout(BOUND, status(url))
        .await
        .ok()
        .flatten()
        .is_some_and(|it| it < 400)
}

/// Sends a GET request and returns the status of the response.
async fn status(url: &str) -> Option<u16> {
    let rest = url.strip_prefix("http://")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = match host.contains(':') {
        true => host.to_owned(),
        false => format!("{host}:80"),
    };
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut head = Vec::new();
    stream.take(HEAD).read_to_end(&mut head).await.ok()?;
    let line = std::str::from_utf8(&head).ok()?.lines().next()?;
    line.split_whitespace().nth(1)?.parse().ok()
}
