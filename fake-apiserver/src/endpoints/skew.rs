//! Shifts times in Leases for a client with a skewed clock. The clock of the process under test is not changed.
//! Instead, the times in its requests and responses are shifted.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum_core::body::Body;
use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};

use super::call::Call;
use crate::api::json::Value;
use crate::api::request_info::{RequestInfo, Verb};

/// Fields with times that clients compare with their own clocks.
const FIELDS: [&str; 2] = ["renewTime", "acquireTime"];

/// Returns `true` for a request for Leases.
pub(crate) fn concerns(info: &RequestInfo) -> bool {
    *info.resource == *"leases"
}

/// Shifts the times of a request. Requests JSON instead of protobuf if the client accepts both, so that the times in
/// the response can be shifted back.
pub(super) fn arrive(call: &mut Call, ahead_ms: i64) {
    call.body = moved(&call.body, ahead_ms);
    let accept = call.accept().unwrap_or_default();
    let takes_json = accept.contains("application/json") || accept.contains("*/*");
    if takes_json && accept.contains("protobuf") && !accept.contains("as=") {
        let json = HeaderValue::from_static("application/json");
        call.parts.headers.insert(ACCEPT, json);
    }
}

/// Shifts the times in JSON; other bodies are not changed.
fn moved(bytes: &Bytes, ahead_ms: i64) -> Bytes {
    let Ok(mut value) = serde_json::from_slice::<Value>(bytes) else {
        return bytes.clone();
    };
    shift(&mut value, SignedDuration::from_millis(ahead_ms));
    format!("{value}\n").into()
}

fn shift(value: &mut Value, by: SignedDuration) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if FIELDS.contains(&key.as_str()) => {
                        if let Some(time) = text.parse::<Timestamp>().ok().and_then(|it| it.checked_add(by).ok()) {
                            *text = time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string().into();
                        }
                    }
                    _ => shift(value, by),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|it| shift(it, by)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Shifts the times in the response of a handler back.
pub(crate) async fn answer(response: Response<Body>, info: &RequestInfo, ahead_ms: i64) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    if info.verb == Verb::Watch {
        return Response::from_parts(parts, Body::new(Lines { body, ahead_ms }));
    }
    parts.headers.remove(http::header::CONTENT_LENGTH);
    // Bodies of handlers do not fail. Faults truncate the body later.
    let bytes = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
    Response::from_parts(parts, Body::from(moved(&bytes, ahead_ms.saturating_neg())))
}

/// The body of a watch, with one line in each frame.
struct Lines {
    body: Body,
    ahead_ms: i64,
}

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = axum_core::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum_core::Error>>> {
        let ahead_ms = self.ahead_ms;
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|it| it.map(|it| it.map_data(|data| moved(&data, ahead_ms.saturating_neg())))))
    }
}
