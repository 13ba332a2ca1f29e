//! Counts and records requests when they end. A watch or a connection ends together with its body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum_core::body::Body;
use bytes::Bytes;
use http::{Method, Response};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;

use super::audit::Record;
use super::authentication::Refused;
use super::broken::NoAnswer;
use super::call::{Call, KeptAnswer};
use super::metrics::Labels;
use super::upgrade::Upgrade;
use super::{Endpoints, encode};
use crate::api::status::Status;

/// The result of handling a request: a response, a failure, or a panic.
type Handled = std::thread::Result<Result<Response<Body>, Status>>;

/// Builds the response to a request that was handled, and counts and records the request.
pub(super) async fn finish(server: &Arc<Endpoints>, call: &mut Call, handled: Handled) -> Response<Body> {
    let now = || server.registry.reader.entropy.now();
    let mut record = call.record.take();
    if let Some(record) = &mut record {
        record.annotated(&call.remarks.annotations);
    }
    let mut response = match handled {
        Ok(Ok(response)) => match record.as_deref_mut() {
            Some(record) => Box::pin(show(record, call, response)).await,
            None => response,
        },
        Ok(Err(status)) => {
            if let Some(record) = &mut record {
                record.failed(&status);
            }
            encode::failure(call, &status)
        }
        Err(_) => {
            let status = Status::internal("the server panicked; see its log");
            if let Some(mut record) = record.take() {
                record.panicked(&status, now());
            }
            encode::failure(call, &status)
        }
    };
    let is_broken = response.extensions().get::<NoAnswer>().is_some();
    if let Some(record) = &mut record {
        record.has_code((!is_broken).then_some(response.status().as_u16()));
        if call.is_long_running {
            record.begins(now());
        }
        if call.deprecation.is_some() && call.is_admitted {
            record.deprecated();
        }
    }
    match labels(call, &response).filter(|_| !is_broken) {
        Some(labels) => response = count(server, call, response, labels, record),
        None => record.iter_mut().for_each(|it| it.ends(now())),
    }
    response
}

/// Adds a response to the audit record of its request.
async fn show(record: &mut Record, call: &Call, response: Response<Body>) -> Response<Body> {
    let kept = response.extensions().get::<KeptAnswer>().cloned();
    if let Some(KeptAnswer::Whole(bytes)) = &kept {
        record.succeeded(bytes);
    }
    if !record.wants_answer() || call.is_long_running || call.info.is_none() || !call.struck.is_empty() {
        return response;
    }
    let (bytes, response) = match kept {
        Some(KeptAnswer::Whole(bytes)) => (bytes, response),
        Some(KeptAnswer::Stored(stored)) => (stored.bytes(), response),
        None => {
            let (parts, body) = response.into_parts();
            // Bodies from this process do not fail.
            let bytes = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
            (bytes.clone(), Response::from_parts(parts, Body::from(bytes)))
        }
    };
    if let Ok(object) = serde_json::from_slice(&bytes) {
        record.answered(object);
    }
    response
}

/// Returns the metric labels of a request; `None` if it is not counted, such as a request that was not admitted.
fn labels(call: &Call, response: &Response<Body>) -> Option<Labels> {
    match &call.info {
        _ if !call.is_admitted => None,
        // For built-in resources, Go's router checks the media type of a patch, and does not count requests without a
        // route.
        Some(_) if call.has_routes && call.parts.method == Method::PATCH && response.status() == 415 => None,
        Some(info) => Some(Labels::of_resource(info, &call.parts, &call.query)),
        None => Labels::of_document(call.parts.uri.path(), &call.parts, response.headers()),
    }
}

/// Counts a response: a watch or a connection when it ends, any other response immediately.
fn count(
    server: &Arc<Endpoints>,
    call: &Call,
    response: Response<Body>,
    labels: Labels,
    record: Option<Box<Record>>,
) -> Response<Body> {
    let code = response.status().as_u16();
    let mut ending = Ending {
        server: Arc::clone(server),
        labels,
        record,
        code,
        started: call.started,
        lasting: None,
    };
    if call.is_long_running {
        let lasting = ending.labels.of_long_running(&call.parts, &call.query);
        server.metrics.begin(lasting.clone());
        ending.lasting = Some(lasting);
        if code < 300 {
            return ending.follow(response);
        }
    }
    response
}

/// Builds the response to a request that was not admitted.
pub(super) fn refuse(server: &Endpoints, call: &Call, refused: Refused) -> Result<Response<Body>, Status> {
    match refused {
        Refused::Status(status) => Err(*status),
        Refused::TooMany => Ok(too_many(server, call)),
    }
}

/// Refuses a request above the limit of concurrent requests, without a Status, like `tooManyRequests` of
/// k8s.io/apiserver.
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

/// A request in progress, which is counted and recorded when this value is dropped.
struct Ending {
    server: Arc<Endpoints>,
    labels: Labels,
    record: Option<Box<Record>>,
    code: u16,
    started: Duration,
    /// The labels under which a long-running request is counted while it is open.
    lasting: Option<Labels>,
}

impl Ending {
    /// Ends the request together with its response: when the upgraded connection or the body ends.
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
        if let Some(lasting) = &self.lasting {
            metrics.end(lasting);
        }
        let entropy = &self.server.registry.reader.entropy;
        let took = entropy.elapsed().saturating_sub(self.started);
        metrics.count(self.labels.clone(), self.code, took);
        if let Some(record) = &mut self.record {
            record.ends(entropy.now());
        }
    }
}

/// A body that ends the request when it is dropped.
struct Followed {
    body: Body,
    _ending: Ending,
}

impl http_body::Body for Followed {
    type Data = Bytes;
    type Error = axum_core::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum_core::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
