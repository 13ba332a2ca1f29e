//! Discovery, OpenAPI, version and health: what is answered without looking at state. Made when first asked for.

use axum::body::Body;
use http::Response;

use super::encode;
use super::filters::Call;
use crate::api::status::Status;
use crate::registry::Registry;
use crate::registry::scheme::Scheme;

/// The documents of a server.
#[derive(Debug, Default)]
pub(crate) struct Documents;

impl Documents {
    /// Answers a path that names no resource.
    pub(crate) fn answer(
        &self,
        _registry: &Registry,
        _scheme: &Scheme,
        _call: &Call,
    ) -> Result<Response<Body>, Status> {
        Ok(encode::not_found_text())
    }
}
