//! `Source`: a type-erased `ListWatch` that converts panics to errors.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::StreamExt;

use crate::cache::list_watch::{Body, ListOptions, ListWatch, WatchOptions};
use crate::error::text_of_panic;
use crate::{Error, ObjectKey};

/// A type-erased `ListWatch`.
pub(crate) trait Source: Send + Sync {
    fn list<'a>(&'a self, options: &'a ListOptions) -> BoxFuture<'a, Result<Body, Error>>;
    fn watch<'a>(&'a self, options: &'a WatchOptions) -> BoxFuture<'a, Result<Body, Error>>;
    fn can_stream_lists(&self) -> bool;
    fn may_have(&self, key: &ObjectKey, labels: Option<&BTreeMap<String, String>>) -> bool;
    fn name(&self) -> String;
}

impl<L: ListWatch> Source for L {
    fn list<'a>(&'a self, options: &'a ListOptions) -> BoxFuture<'a, Result<Body, Error>> {
        Box::pin(guarded(self, async move { ListWatch::list(self, options).await }))
    }

    fn watch<'a>(&'a self, options: &'a WatchOptions) -> BoxFuture<'a, Result<Body, Error>> {
        Box::pin(guarded(self, async move { ListWatch::watch(self, options).await }))
    }

    fn can_stream_lists(&self) -> bool {
        ListWatch::can_stream_lists(self)
    }

    fn may_have(&self, key: &ObjectKey, labels: Option<&BTreeMap<String, String>>) -> bool {
        ListWatch::may_have(self, key, labels)
    }

    fn name(&self) -> String {
        ListWatch::name(self)
    }
}

/// Awaits a response of a source. Converts a panic to an error, because a panic would end the informer silently.
async fn guarded(source: &impl ListWatch, asking: impl Future<Output = Result<Body, Error>>) -> Result<Body, Error> {
    let name = source.name();
    let failed = move |panic: Box<dyn Any + Send>| {
        let text = text_of_panic(&*panic);
        Error::refused(format!("{name}: panic: {text}"))
    };
    let body = match AssertUnwindSafe(asking).catch_unwind().await {
        Ok(body) => body?,
        Err(panic) => return Err(failed(panic)),
    };
    let pieces = AssertUnwindSafe(body).catch_unwind();
    Ok(Box::pin(
        pieces.map(move |piece| piece.unwrap_or_else(|panic| Err(failed(panic)))),
    ))
}
