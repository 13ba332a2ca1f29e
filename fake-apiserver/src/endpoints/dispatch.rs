//! Authenticates and authorizes a request, then dispatches it to a document, an aggregated API server, or the handler
//! of its verb. Also applies the server's faults.

use std::future::Future;
use std::sync::Arc;

use axum_core::body::Body;
use http::Response;

use super::call::{Call, KeptAnswer};
use super::route::{self, Target};
use super::{
    Endpoints, aggregation, audit, authentication, broken, documents, encode, ending, filters, handlers, skew,
};
use crate::api::request_info::RequestInfo;
use crate::api::status::Status;
use crate::faults::{Broken, Lost, Outcome, Struck};
use crate::registry::scheme::Row;

impl Endpoints {
    /// Handles a request. Errors are returned as a Status.
    pub(super) async fn answer(self: &Arc<Self>, call: &mut Call, body: Body) -> Result<Response<Body>, Status> {
        if self.faults.downtime.strikes(&call.client) {
            call.struck
                .push("connection refused during a restart of the server".to_owned());
            return Ok(broken::no_answer(Broken::Refused));
        }
        filters::check_arrival(&call.parts)?;
        filters::check_timeout(call)?;
        let admitted = authentication::admit(self, call);
        let scheme = self.registry.reader.scheme();
        if let Err(refused) = admitted {
            // Set here for the journal, which also records refused requests.
            if let Ok(Target::Resource(_, info)) = route::find(&scheme, call) {
                call.info = Some(info);
            }
            return ending::refuse(self, call, refused);
        }
        let found = route::find(&scheme, call);
        if !matches!(found, Ok(Target::Resource(..)))
            && let Some(remote) = aggregation::server_of(self, call.parts.uri.path())
        {
            return Box::pin(aggregation::answer(self, call, body, &remote)).await;
        }
        match found? {
            Target::NotFound => Ok(encode::not_found_text()),
            Target::Document => {
                let remote = Box::pin(aggregation::versions(self, call)).await;
                documents::answer(self, scheme, call, &remote)
            }
            Target::Resource(row, info) => {
                call.info = Some(info);
                call.body = filters::read_body(&call.parts, body).await?;
                audit::sent(call, &row);
                let ahead_ms = self.faults.clocks.ahead_ms(&call.client);
                let skewed = ahead_ms != 0 && call.info.as_ref().is_some_and(skew::concerns);
                if skewed {
                    skew::arrive(call, ahead_ms);
                }
                let mut struck = Struck::default();
                let ahead_ms = skewed.then_some(ahead_ms);
                let answer = self.handle_struck(call, &row, ahead_ms, &mut struck).await;
                (call.struck, call.lost) = (struck.verdicts, struck.lost);
                answer
            }
        }
    }

    /// Handles a request for a resource, after applying the faults that match it. If `ahead_ms` is set, shifts the
    /// times in the response back.
    async fn handle_struck(
        self: &Arc<Self>,
        call: &Call,
        row: &Row,
        ahead_ms: Option<i64>,
        struck: &mut Struck,
    ) -> Result<Response<Body>, Status> {
        let info = call.info.as_ref().ok_or_else(Status::unknown_path)?;
        let handle = || async {
            let answer = handlers::handle(self, call, row, info).await?;
            match ahead_ms {
                Some(ahead_ms) => Ok(skew::answer(answer, info, ahead_ms).await),
                None => Ok(answer),
            }
        };
        self.answer_struck(call, info, struck, handle).await
    }

    /// Returns the response of `handle`, after applying the faults that match the request.
    pub(super) async fn answer_struck<F>(
        &self,
        call: &Call,
        info: &RequestInfo,
        struck: &mut Struck,
        handle: impl FnOnce() -> F,
    ) -> Result<Response<Body>, Status>
    where
        F: Future<Output = Result<Response<Body>, Status>>,
    {
        let mut answer = None;
        let outcome = match self.faults.before(call.seen(info), struck).await {
            Some(outcome) => outcome,
            None => {
                answer = Some(handle().await);
                self.faults.after(struck).await
            }
        };
        if let (Outcome::Instead(_) | Outcome::Broken(_), Some(Ok(answer))) = (&outcome, &answer) {
            struck.lost = lost(answer);
        }
        match (outcome, answer) {
            (Outcome::AsIs, Some(answer)) => answer,
            (Outcome::Truncated(bytes), Some(answer)) => {
                let answer = answer.unwrap_or_else(|status| encode::failure(call, &status));
                Ok(broken::truncated(answer, bytes))
            }
            (Outcome::Instead(status), _) => Err(*status),
            (Outcome::Broken(broken), _) => Ok(broken::no_answer(broken)),
            (Outcome::AsIs | Outcome::Truncated(_), None) => Err(Status::internal("the request was not handled")),
        }
    }
}

/// Describes a response that is not sent; `None` if the request failed.
fn lost(answer: &Response<Body>) -> Option<Lost> {
    let revision = match answer.extensions().get::<KeptAnswer>() {
        Some(KeptAnswer::Stored(stored)) => Some(stored.object.revision),
        Some(KeptAnswer::Whole(_)) | None => None,
    };
    answer.status().is_success().then_some(Lost { revision })
}
