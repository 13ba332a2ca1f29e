//! Transport of webhooks and to aggregated API servers: a review is posted to a service of the test, to an address that
//! the test has set, or to the real host; a request is passed on to one of the first two. This layer uses HTTP and TLS,
//! and only carries the bodies of the registry.

#[cfg(feature = "serve")]
mod http;
#[cfg(feature = "tls")]
mod https;
mod reply;
mod routes;
#[cfg(feature = "serve")]
mod trust;

pub(crate) use routes::{Handler, Routes};
