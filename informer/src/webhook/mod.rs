//! Webhooks: admission that validates and mutates, and conversion between the versions of a custom resource.
//!
//! It knows the manager only as one of the things that it runs. [`Webhooks`] is a service without a socket, which a
//! test calls in process; [`WebhookServer`] puts it behind TLS.

mod webhooks;
mod review;
mod denial;
mod validator;
mod defaulter;
mod conversion;
mod endpoint;
mod stats;
mod server;

pub use conversion::Conversion;
pub use defaulter::Defaulter;
pub use denial::Denial;
pub use review::{AdmissionRequest, GroupVersionKind, GroupVersionResource, Operation};
pub use server::WebhookServer;
pub use validator::Validator;
pub use webhooks::Webhooks;
