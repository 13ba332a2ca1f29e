//! `Backend`: the caches and the API server that a client uses.

use std::any::TypeId;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Uri};
use kube::Client;
use kube::api::ValidationDirective;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::unseen::Unseen;
use super::write_options::WriteOptions;
use crate::Error;
use crate::cache::{CACHE_SYNC_TIMEOUT, SharedInformerFactory};
use crate::reconcile::{Write, Writes};

/// Reads from caches or from the server, and sends writes with the client's options. Clones share the caches and the
/// record of writes.
#[derive(Clone)]
pub(super) struct Backend {
    pub(super) shared: Arc<Shared>,
    pub(super) reader: Reader,
    pub(super) options: WriteOptions,
    /// Types that are always read from the server.
    uncached: Arc<[TypeId]>,
}

pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) factory: SharedInformerFactory,
    /// Cancelled once informers may be started.
    started: CancellationToken,
    pub(super) unseen: Unseen,
    pub(super) cache_sync_timeout: Duration,
}

/// Source from which the objects of a type are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// The cache. The informer is started if necessary.
    Cache,
    /// The cache. Reads fail if the informer has not been started.
    StartedCache,
    Server,
}

/// A request, or the error from building it.
pub(super) type Built = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

impl Backend {
    pub(super) fn new(client: Client, factory: &SharedInformerFactory, started: CancellationToken) -> Self {
        Self {
            shared: Arc::new(Shared {
                client,
                factory: factory.clone(),
                started,
                unseen: Unseen::default(),
                cache_sync_timeout: CACHE_SYNC_TIMEOUT,
            }),
            reader: Reader::Cache,
            options: WriteOptions::default(),
            uncached: Arc::default(),
        }
    }

    /// Sends all further reads of type `K` to the server.
    pub(super) fn read_from_server<K: 'static>(&mut self) {
        self.uncached = self.uncached.iter().copied().chain([TypeId::of::<K>()]).collect();
    }

    /// Returns the source from which objects of type `K` are read.
    pub(super) fn reader_of<K: 'static>(&self) -> Reader {
        if self.uncached.contains(&TypeId::of::<K>()) {
            Reader::Server
        } else {
            self.reader
        }
    }

    /// Checks that informers may be started.
    ///
    /// # Errors
    ///
    /// Fails if the manager is not running yet.
    pub(super) fn check_started(&self) -> Result<(), Error> {
        if self.shared.started.is_cancelled() {
            return Ok(());
        }
        Err(Error::refused(
            "the cache is not started: the client reads from it once the manager runs",
        ))
    }

    /// Sends a write and records it.
    pub(super) async fn send<T: DeserializeOwned>(&self, request: Built) -> Result<T, Error> {
        self.writing(request, async |request| self.shared.client.request::<T>(request).await)
            .await
    }

    /// Sends a deletion and records it. The server responds with an object or a Status.
    pub(super) async fn send_delete<T>(&self, request: Built) -> Result<(), Error>
    where
        T: Clone + DeserializeOwned,
    {
        self.writing(request, async |request| {
            self.shared.client.request_status::<T>(request).await.map(drop)
        })
        .await
    }

    async fn writing<T>(
        &self,
        request: Built,
        send: impl AsyncFnOnce(http::Request<Vec<u8>>) -> Result<T, kube::Error>,
    ) -> Result<T, Error> {
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        if let Some(directive) = &self.options.field_validation
            && matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH)
        {
            *request.uri_mut() = with_field_validation(request.uri(), directive)?;
        }
        let note = |writes: &[Write]| {
            self.shared.unseen.remember(writes);
            Writes::pass_on(writes);
        };
        Ok(Writes::noted(send(request), note).await?)
    }
}

/// Adds the query parameter `fieldValidation`, which kube's `PostParams` does not support.
fn with_field_validation(uri: &Uri, directive: &ValidationDirective) -> Result<Uri, kube::Error> {
    let text = uri.to_string();
    let separator = match text.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some(_) => "&",
    };
    let text = format!("{text}{separator}fieldValidation={}", directive.as_str());
    text.parse()
        .map_err(|err: http::uri::InvalidUri| kube::Error::HttpError(err.into()))
}
