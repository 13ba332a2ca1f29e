//! Responses of the server in transit to a client.

use std::io;

use bytes::Bytes;
use fake_apiserver::ResponseBody;
use http::{Response, StatusCode};
use http_body_util::BodyExt;

use super::harness::Harness;
use crate::explore::gate::{Answer, Deletion, Life, Page};
use crate::explore::trace::Request;

/// Records a response at the gate and returns it. If `page` is `None`, the client does not receive the response.
pub(crate) async fn look(
    harness: &Harness,
    page: Option<Page>,
    life: &Life,
    about: &Request,
    index: usize,
    deletion: Deletion,
    response: Response<ResponseBody>,
) -> Response<Bytes> {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
    let answer = Answer {
        about,
        index,
        deletion,
        is_success: parts.status.is_success(),
        is_created: parts.status == StatusCode::CREATED,
        body: &body,
    };
    harness.gate.answered(life, answer, page);
    Response::from_parts(parts, body)
}

/// Returns the error of a broken connection.
pub(crate) fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "connection reset by peer")
}
