//! Handles HTTP requests: a request passes through `filters`, `authentication`, `route`, `negotiation` and `decode` to
//! its handler, and the response through `encode`.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum_core::body::Body;
use futures::FutureExt as _;
use http::{Request, Response};

use crate::faults::{Broken, Faults};
use crate::registry::Registry;

pub(crate) mod call;
pub(crate) mod filters;
pub(crate) mod authentication;
pub(crate) mod impersonation;
pub(crate) mod route;
pub(crate) mod accept;
pub(crate) mod negotiation;
pub(crate) mod decode;
mod dispatch;
pub(crate) mod handlers;
pub(crate) mod aggregation;
mod passed_on;
pub(crate) mod encode;
pub(crate) mod broken;
pub(crate) mod metrics;
pub(crate) mod audit;
mod ending;
pub(crate) mod skew;
#[cfg(feature = "client")]
pub(crate) mod relay;
pub(crate) mod list_body;
pub(crate) mod watch_body;
mod watch_protobuf;
mod exit;
pub(crate) mod upgrade;
#[cfg_attr(not(feature = "serve"), path = "no_websocket.rs")]
mod websocket;
pub(crate) mod partial;
pub(crate) mod status_protobuf;
#[cfg_attr(not(feature = "serve"), path = "no_table.rs")]
pub(crate) mod table;
pub(crate) mod discovery;
#[cfg(feature = "serve")]
pub(crate) mod openapi;
pub(crate) mod documents;
pub(crate) mod journal;

use aggregation::Forward;
use audit::Audit;
use broken::NoAnswer;
use call::Call;

use journal::Journal;
use metrics::Metrics;

/// Handles HTTP requests with the registry, faults, journal and metrics of a server.
#[derive(Debug)]
pub(crate) struct Endpoints {
    /// Implements the verbs.
    pub(crate) registry: Registry,
    /// Injected faults.
    pub(crate) faults: Faults,
    /// Record of requests and responses.
    pub(crate) journal: Journal,
    /// Recording of audit events, if it is enabled.
    pub(crate) audit: Option<Audit>,
    /// Counters of requests and events.
    pub(crate) metrics: Metrics,
    /// Aggregated API servers.
    pub(crate) backends: Arc<dyn Forward>,
    /// Number of requests received so far.
    pub(crate) requests: AtomicU64,
}

impl Endpoints {
    /// Handles a request on a connection. If a fault breaks the connection, returns an error that describes the fault.
    pub(crate) async fn converse(self: Arc<Self>, request: Request<Body>) -> io::Result<Response<Body>> {
        let response = self.handle(request).await;
        match response.extensions().get::<NoAnswer>() {
            Some(NoAnswer(Broken::Refused)) => Err(io::ErrorKind::ConnectionRefused.into()),
            Some(NoAnswer(_)) => Err(broken::cut_error()),
            None => Ok(response),
        }
    }

    /// Handles a request, and records it in the journal. If a fault breaks the connection, the response has the
    /// extension [`NoAnswer`]; for a silent connection, it is only returned when the server restarts.
    pub(crate) async fn handle(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let admin = Arc::clone(&self.registry.access.authentication.admin);
        let mut call = Call::new(parts, &self.registry.reader.entropy, admin, number);
        let answered = AssertUnwindSafe(self.answer(&mut call, body)).catch_unwind().await;
        let response = ending::finish(&self, &mut call, answered).await;
        let is_head = call.parts.method == http::Method::HEAD;
        let mut response = filters::finish(call, response, &self.journal, self.registry.reader.entropy.elapsed());
        if is_head {
            *response.body_mut() = Body::empty();
        }
        if let Some(NoAnswer(Broken::Silent)) = response.extensions().get() {
            // The client gets no response; its connection stays open until the server restarts.
            self.faults.downtime.begins().await;
        }
        response
    }
}
