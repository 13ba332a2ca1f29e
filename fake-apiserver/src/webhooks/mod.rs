//! Webhooks on the wire: a review is posted to a service of the test, to an address the test names, or to the real
//! host. It knows HTTP and TLS, and of the registry only what it is asked to carry.

mod http;
#[cfg(feature = "tls")]
mod https;
mod routes;

pub(crate) use routes::{Handler, Routes};
