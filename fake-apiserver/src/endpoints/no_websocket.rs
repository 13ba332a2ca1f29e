//! Replaces `websocket` without the feature `serve`: refuses watches over WebSockets and connections to Pods.

use axum_core::body::Body;
use http::Response;

use super::call::Call;
use crate::api::status::Status;
use crate::api::streams::Connection;

const REFUSED: &str = "WebSockets and connections to Pods need the feature \"serve\" of the crate fake-apiserver";

/// Refuses a watch over a WebSocket.
pub(super) fn watch(_: &Call, _: Response<Body>) -> Result<Response<Body>, Status> {
    Err(Status::new(501, "NotImplemented", REFUSED))
}

/// Refuses a connection to a Pod.
pub(super) fn connect(_: &Call, _: Connection) -> Result<Response<Body>, Status> {
    Err(Status::new(501, "NotImplemented", REFUSED))
}

/// Refuses a WebSocket request for plain text, such as a log.
pub(super) fn text(_: &Call, _: String) -> Result<Response<Body>, Status> {
    Err(Status::new(501, "NotImplemented", REFUSED))
}
