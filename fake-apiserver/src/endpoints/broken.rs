//! Answers that a fault spoils: a body that is cut, and the mark of an answer that never comes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};

use crate::faults::Broken;

/// Left in an answer that is not to be sent: what happens to the connection instead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoAnswer(pub(crate) Broken);

/// The answer that stands for none.
pub(crate) fn no_answer(broken: Broken) -> Response<Body> {
    let mut response = Response::new(Body::from("the connection was broken by a fault that was injected\n"));
    // As a proxy answers for a server that does not; seen by callers that have no connection.
    *response.status_mut() = http::StatusCode::BAD_GATEWAY;
    response.extensions_mut().insert(NoAnswer(broken));
    response
}

/// The answer, cut after so many bytes of its body.
pub(crate) fn truncated(response: Response<Body>, bytes: usize) -> Response<Body> {
    response.map(|body| {
        Body::new(TruncatedBody {
            body,
            left: bytes,
            is_flushed: false,
        })
    })
}

/// Returns the error that a client sees when a connection breaks while it reads.
pub(crate) fn cut_error() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by an injected fault")
}

/// Returns the error that a client sees when a body ends too early.
pub(crate) fn eof_error() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "unexpected end, by an injected fault")
}

/// A body whose connection breaks after so many bytes.
struct TruncatedBody {
    body: Body,
    left: usize,
    /// Set if the data before the break had time to be sent.
    is_flushed: bool,
}

impl http_body::Body for TruncatedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.left == 0 {
            if !std::mem::replace(&mut self.is_flushed, true) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            return Poll::Ready(Some(Err(axum::Error::new(eof_error()))));
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
        // The length that was promised.
        self.body.size_hint()
    }
}
