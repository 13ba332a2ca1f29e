//! `EscapedTargets`: a stream that percent-encodes characters in request targets that Go accepts and hyper refuses.
//! `curl 'host/api/v1/pods?labelSelector=n>5'` sends such a target.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The characters that are escaped. In paths and queries they have the same meaning with and without escapes.
const ESCAPED: &[u8] = b"\"<>\\^`|";

/// Maximum length of a request line that is escaped, in bytes.
const START: usize = 4096;

/// Wraps the stream of a connection.
pub(super) struct EscapedTargets<S> {
    stream: S,
    /// Set if the next bytes may begin a request: at the start, and after each write.
    is_at_start: bool,
    /// Bytes from the start of a request that did not fit into the reader's buffer.
    rest: Vec<u8>,
}

impl<S> EscapedTargets<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            is_at_start: true,
            rest: Vec::new(),
        }
    }

    /// Moves bytes from `rest` into a buffer, and frees `rest` when it is empty.
    fn fill(&mut self, buffer: &mut ReadBuf<'_>) {
        let count = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest[..count]);
        self.rest.drain(..count);
        if self.rest.is_empty() {
            self.rest = Vec::new();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for EscapedTargets<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.rest.is_empty() {
            self.fill(buffer);
            return Poll::Ready(Ok(()));
        }
        if !self.is_at_start {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        // The buffer may be too small for the line: hyper reads 24 bytes to detect the version of HTTP.
        let mut space = [MaybeUninit::uninit(); START];
        let mut start = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut start))?;
        let read = start.filled();
        self.is_at_start = read.is_empty();
        let whole = escaped(read);
        let whole = whole.as_deref().unwrap_or(read);
        let (now, later) = whole.split_at(whole.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.rest = later.to_vec();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for EscapedTargets<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.is_at_start = true;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.is_at_start = true;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Returns the bytes with an escaped target, if they begin with an HTTP/1 request line whose target needs escapes.
fn escaped(read: &[u8]) -> Option<Vec<u8>> {
    let end = read.iter().position(|it| *it == b'\n')?;
    let mut parts = read[..end].splitn(3, |it| *it == b' ');
    let (method, target, protocol) = (parts.next()?, parts.next()?, parts.next()?);
    let is_request = method.iter().all(u8::is_ascii_uppercase) && protocol.starts_with(b"HTTP/1.");
    if !is_request || !target.iter().any(|it| ESCAPED.contains(it)) {
        return None;
    }
    let mut out = Vec::with_capacity(read.len() + 16);
    out.extend([method, b" "].concat());
    for byte in target {
        match ESCAPED.contains(byte) {
            true => out.extend(format!("%{byte:02X}").bytes()),
            false => out.push(*byte),
        }
    }
    out.extend(&read[method.len() + 1 + target.len()..]);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case(
        "GET /a?l=n>5 HTTP/1.1\r\nHost: a\r\n\r\n",
        Some("GET /a?l=n%3E5 HTTP/1.1\r\nHost: a\r\n\r\n")
    )]
    #[case("PUT /\"|\\ HTTP/1.0\r\n\r\n<a>", Some("PUT /%22%7C%5C HTTP/1.0\r\n\r\n<a>"))]
    #[case::nothing_to_escape("GET /a?l=n%3E5 HTTP/1.1\r\nX: <\r\n\r\n", None)]
    #[case::incomplete_line("GET /a?l=n>5 HTTP/1.1", None)]
    #[case::body("{\"a\": \"<b> HTTP/1.1\"}\n", None)]
    #[case::http2("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", None)]
    #[case::method_only("GET\n", None)]
    fn only_request_targets_are_escaped(#[case] read: &str, #[case] expected: Option<&str>) {
        assert_eq!(escaped(read.as_bytes()).as_deref(), expected.map(str::as_bytes));
    }
}
