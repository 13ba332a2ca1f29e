//! HTTP in, HTTP out: a request passes `filters`, `route`, `negotiation` and `decode`
//! to its handler, and comes back through `encode`.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use futures::FutureExt as _;
use http::{Request, Response};

use crate::api::status::Status;
use crate::faults::{Broken, Faults, Outcome, Struck};
use crate::registry::Registry;
use crate::registry::scheme::Row;

pub(crate) mod call;
pub(crate) mod filters;
pub(crate) mod authentication;
pub(crate) mod impersonation;
pub(crate) mod route;
pub(crate) mod accept;
pub(crate) mod negotiation;
pub(crate) mod decode;
pub(crate) mod yaml;
pub(crate) mod handlers;
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
mod spdy;
pub(crate) mod websocket;
pub(crate) mod partial;
pub(crate) mod status_protobuf;
pub(crate) mod table;
pub(crate) mod discovery;
pub(crate) mod openapi;
pub(crate) mod documents;
pub(crate) mod journal;

use audit::Audit;
use broken::NoAnswer;
use call::Call;

use journal::Journal;
use metrics::Metrics;
use route::Target;

/// The server as a function from requests to answers.
#[derive(Debug)]
pub(crate) struct Endpoints {
    /// Meaning of the verbs.
    pub(crate) registry: Registry,
    /// Injected faults.
    pub(crate) faults: Faults,
    /// Record of requests and answers.
    pub(crate) journal: Journal,
    /// Recording of audit events, if it is on.
    pub(crate) audit: Option<Audit>,
    /// Counters of requests and events.
    pub(crate) metrics: Metrics,
    /// Number of requests ever received.
    pub(crate) requests: AtomicU64,
}

impl Endpoints {
    /// Answers a request on a connection, which a fault may break: then the error says how, and there is no answer.
    pub(crate) async fn converse(self: Arc<Self>, request: Request<Body>) -> io::Result<Response<Body>> {
        let response = self.handle(request).await;
        match response.extensions().get::<NoAnswer>() {
            Some(NoAnswer(Broken::Refused)) => Err(io::ErrorKind::ConnectionRefused.into()),
            Some(NoAnswer(_)) => Err(broken::cut_error()),
            None => Ok(response),
        }
    }

    /// Answers a request. The journal records it in every case; and there is an answer, unless a fault withholds it.
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
            // Only a server that dies ends the silence.
            self.faults.downtime.begins().await;
        }
        response
    }

    async fn answer(self: &Arc<Self>, call: &mut Call, body: Body) -> Result<Response<Body>, Status> {
        if self.faults.downtime.strikes(&call.client) {
            call.struck.push("connection refused, restarting".to_owned());
            return Ok(broken::no_answer(Broken::Refused));
        }
        filters::check_arrival(&call.parts)?;
        filters::check_timeout(call)?;
        let admitted = authentication::admit(self, call);
        let scheme = self.registry.reader.scheme();
        if let Err(refused) = admitted {
            // The journal knows what was refused.
            if let Ok(Target::Resource(_, info)) = route::find(&scheme, call) {
                call.info = Some(info);
            }
            return ending::refuse(self, call, refused);
        }
        match route::find(&scheme, call)? {
            Target::NotFound => Ok(encode::not_found_text()),
            Target::Document => documents::answer(self, scheme, call).await,
            Target::Resource(row, info) => {
                call.info = Some(info);
                call.body = filters::read_body(&call.parts, body).await?;
                audit::sent(call, &row);
                let ahead_ms = self.faults.clocks.ahead_ms(&call.client);
                let skewed = call.info.clone().filter(|info| ahead_ms != 0 && skew::concerns(info));
                if skewed.is_some() {
                    skew::arrive(call, ahead_ms);
                }
                let mut struck = Struck::default();
                let answer = self.handle_struck(call, &row, &mut struck).await;
                call.struck = struck.verdicts;
                match (answer, skewed) {
                    (Ok(answer), Some(info)) => Ok(skew::answer(answer, &info, ahead_ms).await),
                    (answer, _) => answer,
                }
            }
        }
    }

    /// Handles a request for a resource, unless a fault decides otherwise.
    async fn handle_struck(
        self: &Arc<Self>,
        call: &Call,
        row: &Row,
        struck: &mut Struck,
    ) -> Result<Response<Body>, Status> {
        let info = call.info.as_ref().ok_or_else(Status::unknown_path)?;
        let mut answer = None;
        let outcome = match self.faults.before(call.seen(info), struck).await {
            Some(outcome) => outcome,
            None => {
                answer = Some(handlers::handle(self, call, row, info).await);
                struck.after().await
            }
        };
        match (outcome, answer) {
            (Outcome::AsIs, Some(answer)) => answer,
            (Outcome::Truncated(bytes), Some(answer)) => {
                let answer = answer.unwrap_or_else(|status| encode::failure(call, &status));
                Ok(broken::truncated(answer, bytes))
            }
            (Outcome::Instead(status), _) => Err(*status),
            (Outcome::Broken(broken), _) => Ok(broken::no_answer(broken)),
            (Outcome::AsIs | Outcome::Truncated(_), None) => Err(Status::internal("nothing was done")),
        }
    }
}
