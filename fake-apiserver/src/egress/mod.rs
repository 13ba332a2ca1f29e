//! Outgoing calls of the server. Reviews for webhooks are posted to a service in the test process, to an address that
//! the test has set, or to the real host. Requests to aggregated API servers are passed on to such a service or
//! address. This layer uses HTTP and TLS, and does not interpret the bodies.

#[cfg(feature = "serve")]
mod http;
#[cfg(feature = "tls")]
mod https;
mod reply;
mod routes;
#[cfg(feature = "serve")]
mod trust;

pub(crate) use routes::{Handler, Routes};
