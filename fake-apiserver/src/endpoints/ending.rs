//! Counting of requests: `Ending` is the end of a watch or a connection, at which it is counted as answered.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use http_body::{Frame, SizeHint};

use super::authentication::Refused;
use super::broken::NoAnswer;
use super::filters::Call;
use super::metrics::Labels;
use super::websocket::Upgrade;
use super::{Endpoints, encode};
use crate::api::status::Status;

/// Counts a request that was admitted: a watch or a connection when it ends, any other now. What a fault leaves
/// without an answer is not counted.
pub(super) fn count(server: &Arc<Endpoints>, call: &Call, response: Response<Body>) -> Response<Body> {
    let labels = match &call.info {
        _ if !call.is_admitted || response.extensions().get::<NoAnswer>().is_some() => return response,
        Some(info) => Labels::of_resource(info, &call.parts, &call.query),
        None => match Labels::of_document(call.parts.uri.path(), response.headers()) {
            Some(labels) => labels,
            None => return response,
        },
    };
    let code = response.status().as_u16();
    if call.is_long_running() && code < 300 {
        return Ending::new(Arc::clone(server), labels, code, call.started).follow(response);
    }
    let took = server.registry.entropy.elapsed().saturating_sub(call.started);
    server.metrics.count(labels, code, took);
    response
}

/// The answer to a request that was not admitted.
pub(super) fn refuse(server: &Endpoints, call: &Call, refused: Refused) -> Result<Response<Body>, Status> {
    match refused {
        Refused::Status(status) => Err(*status),
        Refused::TooMany => Ok(too_many(server, call)),
    }
}

/// The refusal of one request too many, which is no Status. After `tooManyRequests` of k8s.io/apiserver.
fn too_many(server: &Endpoints, call: &Call) -> Response<Body> {
    let labels = call
        .info
        .as_ref()
        .map(|info| Labels::of_resource(info, &call.parts, &call.query));
    let labels = labels.unwrap_or_else(|| Labels::bare("apiserver", &call.parts.method));
    let response = encode::too_many_text();
    server.metrics.count_dropped(labels, response.status().as_u16());
    response
}

/// A long-running request, which ends when this is dropped.
struct Ending {
    server: Arc<Endpoints>,
    labels: Labels,
    code: u16,
    started: Duration,
}

impl Ending {
    /// Begins a request of these labels, which was answered with `code`.
    fn new(server: Arc<Endpoints>, labels: Labels, code: u16, started: Duration) -> Self {
        server.metrics.begin(labels.clone());
        Self {
            server,
            labels,
            code,
            started,
        }
    }

    /// Ends the request with its answer: with the connection that takes the place of HTTP, else with the body.
    fn follow(self, response: Response<Body>) -> Response<Body> {
        if let Some(upgrade) = response.extensions().get::<Upgrade>() {
            upgrade.clone().keep(self);
            return response;
        }
        response.map(|body| Body::new(Followed { body, _ending: self }))
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let metrics = &self.server.metrics;
        metrics.end(&self.labels);
        let now = self.server.registry.entropy.elapsed();
        metrics.count(self.labels.clone(), self.code, now.saturating_sub(self.started));
    }
}

/// A body, and what ends with it.
struct Followed {
    body: Body,
    _ending: Ending,
}

impl http_body::Body for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
