//! `Transport`: sends reviews to webhooks, so that the registry does not depend on the network.

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::registry::types::endpoint::Endpoint;

/// The relevant parts of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The status code of the response.
    pub(crate) code: u16,
    /// Value of the header `Content-Type`; empty if it is missing.
    pub(crate) content_type: String,
    /// Value of the header `Retry-After`, if it is a number of seconds.
    pub(crate) retry_after: Option<u64>,
    /// Value of the header `Location`, if present.
    pub(crate) location: Option<String>,
    /// The body of the response.
    pub(crate) body: Bytes,
}

/// Maximum length of a response, in bytes; a longer response fails the call. kube-apiserver does not limit responses.
pub(crate) const REPLY_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Sends JSON in POST requests.
pub(crate) trait Transport: Send + Sync + std::fmt::Debug {
    /// Posts `body` to `url`, which is the endpoint's URL with parameters. Fails with the part of the message after
    /// `Post "URL": `. The caller applies the timeout.
    fn post<'a>(&'a self, endpoint: &'a Endpoint, url: &'a str, body: Bytes) -> BoxFuture<'a, Result<Reply, String>>;

    /// Returns `true` if the test has registered a service or an address for the endpoint's host.
    fn has_route(&self, endpoint: &Endpoint) -> bool;
}

/// A transport for which all calls fail.
#[derive(Debug)]
pub(crate) struct Unreachable;

impl Transport for Unreachable {
    fn post<'a>(&'a self, _: &'a Endpoint, _: &'a str, _: Bytes) -> BoxFuture<'a, Result<Reply, String>> {
        Box::pin(std::future::ready(Err("this server does not call webhooks".to_owned())))
    }

    fn has_route(&self, _: &Endpoint) -> bool {
        false
    }
}
