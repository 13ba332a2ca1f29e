//! `Host`: the parts of a server that its workers use.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};

use crate::registry::Registry;

/// The server that the workers belong to.
pub(crate) trait Host: Send + Sync {
    /// Returns the server's state.
    fn registry(&self) -> &Registry;

    /// Handles a request like a request from a client.
    fn call(self: Arc<Self>, request: Request<Bytes>) -> BoxFuture<'static, Response<Bytes>>;
}
