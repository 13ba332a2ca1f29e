//! Responses of other servers that are forwarded to the client.

use axum_core::body::Body;
use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;

use super::call::{Call, KeptAnswer};
use crate::api::request_info::Verb;

/// Reads the whole response for the journal. Responses to watches, connections and non-resource requests, and responses
/// that a fault has affected, are forwarded without being read.
pub(super) async fn kept(call: &Call, response: Response<Body>) -> Response<Body> {
    let is_stream = call.info.as_ref().is_none_or(|info| info.verb == Verb::Watch) || call.is_long_running;
    if is_stream || !call.struck.is_empty() {
        return response;
    }
    let (parts, body) = response.into_parts();
    match body.collect().await {
        Ok(body) => {
            let bytes = body.to_bytes();
            let mut response = Response::from_parts(parts, Body::from(bytes.clone()));
            response.extensions_mut().insert(KeptAnswer::Whole(bytes));
            response
        }
        Err(error) => Response::from_parts(
            parts,
            Body::from_stream(futures::stream::once(async { Err::<Bytes, _>(error) })),
        ),
    }
}
