//! Calls of the server to others: a webhook's review is posted to a service of the test, to an address that the test
//! has set, or to the real host; a request to an aggregated API server is passed on to one of the first two. This layer
//! uses HTTP and TLS, and only carries the bodies of the registry.

#[cfg(feature = "serve")]
mod http;
#[cfg(feature = "tls")]
mod https;
mod reply;
mod routes;
#[cfg(feature = "serve")]
mod trust;

pub(crate) use routes::{Handler, Routes};
