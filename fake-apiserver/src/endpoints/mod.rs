//! HTTP in, HTTP out. The one layer that knows axum: a request passes `filters`, `route`, `negotiation` and `decode`
//! to its handler, and comes back through `encode`.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::Body;
use futures::FutureExt as _;
use http::{Request, Response};

use crate::api::status::Status;
use crate::faults::Faults;
use crate::registry::Registry;

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
pub(crate) mod list_body;
pub(crate) mod watch_body;
pub(crate) mod partial;
pub(crate) mod status_protobuf;
pub(crate) mod table;
pub(crate) mod discovery;
pub(crate) mod discovery_protobuf;
pub(crate) mod openapi;
pub(crate) mod documents;
pub(crate) mod journal;

use filters::Call;
use journal::Journal;
use route::Target;

/// The server as a function from requests to answers.
#[derive(Debug)]
pub(crate) struct Endpoints {
    /// What verbs mean.
    pub(crate) registry: Registry,
    /// What a test asked to go wrong.
    pub(crate) faults: Faults,
    /// What was asked and answered.
    pub(crate) journal: Journal,
}

impl Endpoints {
    /// Answers a request. Whatever happens, there is an answer, and the journal has it.
    pub(crate) async fn handle(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let mut call = Call::new(
            parts,
            &self.registry.entropy,
            Arc::clone(&self.registry.access.authentication.admin),
        );
        let answered = AssertUnwindSafe(self.answer(&mut call, body)).catch_unwind().await;
        let response = answered.unwrap_or_else(|_| Err(Status::internal("the server panicked; see its log")));
        let response = response.unwrap_or_else(|status| encode::failure(&call, &status));
        call.finish(response, &self.journal, self.registry.entropy.elapsed())
    }

    async fn answer(self: &Arc<Self>, call: &mut Call, body: Body) -> Result<Response<Body>, Status> {
        filters::check_timeout(call)?;
        authentication::admit(self, call)?;
        let scheme = self.registry.scheme();
        match route::find(&scheme, call)? {
            Target::NotFound => Ok(encode::not_found_text()),
            Target::Document => documents::answer(&self.registry, &scheme, call),
            Target::Resource(row, info) => {
                call.info = Some(info);
                call.body = filters::read_body(&call.parts, body).await?;
                let call = &*call;
                let info = call.info.as_ref().ok_or_else(Status::unknown_path)?;
                let lost = self.faults.on_request(call.seen(info)).await?;
                let answer = handlers::handle(self, call, &row, info).await;
                lost.map_or(answer, Err)
            }
        }
    }
}
