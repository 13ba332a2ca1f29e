//! `Upgrade`: the handler of a connection after its upgrade from HTTP, and the headers that request an upgrade.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use http::header::{self, HeaderMap};
use tokio::io::{AsyncRead, AsyncWrite};

/// Prefix of the WebSocket subprotocol that contains a bearer token in base64url. Browsers use it, because they cannot
/// set the `Authorization` header of a WebSocket.
pub(super) const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// A connection after its upgrade from HTTP.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

type Work = Box<dyn FnOnce(Box<dyn Stream>) -> BoxFuture<'static, ()> + Send>;

/// The handler of a connection after the response 101: a response extension that can be taken once.
#[derive(Clone)]
pub(crate) struct Upgrade(Arc<Mutex<Option<Work>>>);

impl Upgrade {
    pub(super) fn new(work: impl FnOnce(Box<dyn Stream>) -> BoxFuture<'static, ()> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(work)))))
    }

    /// Takes the handler of the connection.
    pub(crate) fn take(&self) -> Option<Work> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps a value alive until the handler has finished or is dropped.
    pub(super) fn keep(&self, kept: impl Send + 'static) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(work) = slot.take() {
            *slot = Some(Box::new(move |stream| {
                let work = work(stream);
                Box::pin(async move {
                    work.await;
                    drop(kept);
                })
            }));
        }
    }
}

/// Returns `true` if the headers request a WebSocket upgrade.
pub(super) fn is_asked_for(headers: &HeaderMap) -> bool {
    has_word(headers, &header::CONNECTION, "upgrade") && has_word(headers, &header::UPGRADE, "websocket")
}

fn has_word(headers: &HeaderMap, name: &header::HeaderName, word: &str) -> bool {
    words(headers, name).any(|it| it.eq_ignore_ascii_case(word))
}

/// Returns the items of a header that contains a comma-separated list.
pub(super) fn words<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|it| it.to_str().ok());
    values
        .flat_map(|it| it.split(','))
        .map(str::trim)
        .filter(|it| !it.is_empty())
}
