//! Webhooks: validating and mutating admission, and conversion between the versions of a custom resource.
//!
//! This module uses [`runtime`](crate::runtime) only for its server. [`Webhooks`] is a service without a socket, which
//! tests can call in process; [`WebhookServer`] serves it over TLS.

mod webhooks;
mod review;
mod denial;
mod validator;
mod defaulter;
mod conversion;
mod partial;
mod endpoint;
mod span;
mod stats;
mod server;

// The type that `Webhooks::service` returns, re-exported so that callers do not have to depend on the same version of
// axum.
pub use axum::Router;
pub use conversion::Conversion;
pub use defaulter::Defaulter;
pub use denial::Denial;
pub use review::{AdmissionRequest, Operation};
pub use server::WebhookServer;
pub use validator::Validator;
pub use webhooks::Webhooks;
