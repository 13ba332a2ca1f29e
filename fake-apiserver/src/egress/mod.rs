//! Outgoing calls of the server. Reviews for webhooks are posted to a service of the test, to an address set by the
//! test, or to the real host; requests to aggregated API servers are passed on to a service or address of the test.
//! This layer uses HTTP and TLS, and does not interpret the bodies.

#[cfg(feature = "serve")]
mod http;
#[cfg(feature = "tls")]
mod https;
mod reply;
mod routes;
#[cfg(feature = "serve")]
mod trust;

pub(crate) use routes::{Handler, Routes};
