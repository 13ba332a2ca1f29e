//! `Transport`: how a review reaches a webhook. The registry knows what is asked and answered, not how it travels.

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::registry::types::endpoint::Endpoint;

/// An answer, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The HTTP status.
    pub(crate) code: u16,
    /// `Content-Type`, empty if it is missing.
    pub(crate) content_type: String,
    /// The whole body.
    pub(crate) body: Bytes,
}

/// The longest answer that is read, in bytes; a longer one fails the call. As the API server limits it.
pub(crate) const REPLY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Posts JSON and reads the answer.
pub(crate) trait Transport: Send + Sync + std::fmt::Debug {
    /// Posts `body` to `url`, which is the endpoint's with parameters. The error is the text after `Post "URL": `.
    /// There is no time limit: callers have one.
    fn post<'a>(&'a self, endpoint: &'a Endpoint, url: &'a str, body: Bytes) -> BoxFuture<'a, Result<Reply, String>>;
}

/// Reaches nothing.
#[derive(Debug)]
pub(crate) struct Unreachable;

impl Transport for Unreachable {
    fn post<'a>(&'a self, _: &'a Endpoint, _: &'a str, _: Bytes) -> BoxFuture<'a, Result<Reply, String>> {
        Box::pin(std::future::ready(Err("this server calls no webhooks".to_owned())))
    }
}
