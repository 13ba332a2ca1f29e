//! Replaces `open_api` without the feature `serve`: refuses requests for OpenAPI documents.

use super::{Answer, Asked};
use crate::api::status::Status;

const REFUSED: &str = "OpenAPI documents need the feature \"serve\" of the crate fake-apiserver";

impl Asked<'_> {
    /// Refuses `/openapi/v2`.
    #[expect(clippy::unused_self, reason = "with the feature it is read")]
    pub(super) fn open_api_v2(&self) -> Answer {
        Err(Status::new(501, "NotImplemented", REFUSED))
    }

    /// Refuses `/openapi/v3`.
    #[expect(clippy::unused_self, reason = "with the feature it is read")]
    pub(super) fn open_api_v3(&self, _: &str) -> Answer {
        Err(Status::new(501, "NotImplemented", REFUSED))
    }
}
