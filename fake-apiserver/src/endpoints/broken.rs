//! Responses damaged by faults: truncated bodies, and a marker for responses that are never sent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum_core::body::Body;
use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};

use crate::faults::Broken;

/// Response extension that marks a broken connection: the response is not sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoAnswer(pub(crate) Broken);

/// Returns a response with the marker for a broken connection.
pub(crate) fn no_answer(broken: Broken) -> Response<Body> {
    let mut response = Response::new(Body::from("the connection was broken by an injected fault\n"));
    // The status that a proxy returns if its upstream does not respond. Only in-process callers without a connection
    // receive it.
    *response.status_mut() = http::StatusCode::BAD_GATEWAY;
    response.extensions_mut().insert(NoAnswer(broken));
    response
}

/// Truncates the body of a response after this number of bytes.
pub(crate) fn truncated(response: Response<Body>, bytes: usize) -> Response<Body> {
    response.map(|body| {
        Body::new(TruncatedBody {
            body,
            left: bytes,
            is_flushed: false,
        })
    })
}

/// Returns the error that a client gets if its connection breaks while it reads.
pub(crate) fn cut_error() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by an injected fault")
}

/// Returns the error that a client gets if the body ends too early.
pub(crate) fn eof_error() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the body was truncated by an injected fault",
    )
}

/// A body that breaks its connection after a number of bytes.
struct TruncatedBody {
    body: Body,
    left: usize,
    /// Set if the data before the break has been flushed.
    is_flushed: bool,
}

impl http_body::Body for TruncatedBody {
    type Data = Bytes;
    type Error = axum_core::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum_core::Error>>> {
        if self.left == 0 {
            if !std::mem::replace(&mut self.is_flushed, true) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            return Poll::Ready(Some(Err(axum_core::Error::new(eof_error()))));
        }
        let frame = match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            other => return Poll::Ready(other),
        };
        Poll::Ready(Some(Ok(frame.map_data(|mut data| {
            data.truncate(self.left);
            self.left -= data.len();
            data
        }))))
    }

    fn size_hint(&self) -> SizeHint {
        // The size before the truncation, so that `Content-Length` is not changed.
        self.body.size_hint()
    }
}
