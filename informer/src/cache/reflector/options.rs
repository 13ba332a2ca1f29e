//! `ReflectorOptions`: timeouts, retries and storage of a reflector, and transforms of its objects.

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::Backoff;
use crate::error::text_of_panic;
use crate::object::{Cacheable, CachedObject, Header, Keep, Managed, Storage};
use crate::{Error, ObjectKey};

/// Minimum value of [`ReflectorOptions::min_watch_timeout`].
const MIN_WATCH_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Default of [`ReflectorOptions::request_timeout`], the default of kube-apiserver's `--request-timeout`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A function that rewrites the JSON text of an object.
pub(crate) type Transform = Arc<dyn Fn(&ObjectKey, &str) -> Result<String, Error> + Send + Sync>;

/// Callback for errors of a reflector.
type OnError = Arc<dyn Fn(&Error) + Send + Sync>;

/// Options of a reflector. Options that client-go has as well have the same defaults.
pub struct ReflectorOptions<K> {
    /// Seed of all jitter. Default: 0, which selects a random seed, so that replicas do not reconnect at the same
    /// instant after a server outage. While tokio's clock is paused, as in tests, the selected seed is constant.
    pub seed: u64,
    /// Delays after failures.
    pub backoff: Backoff,
    /// Maximum number of objects in a page of a list. Default: `None`, which requests pages of 500 objects, but no
    /// pages for a list at a given version, because servers with a watch cache serve such lists from it only without a
    /// page size.
    pub page_size: Option<u32>,
    /// Minimum duration of a watch before the server ends it; the maximum is twice as long. Default: five minutes;
    /// smaller values are raised to five minutes.
    pub min_watch_timeout: Duration,
    /// Time limit for requests. It applies to the first byte of a page and to each further chunk; a whole page may take
    /// five times as long. Opening a streaming list may take half as long, and opening another watch as well, but at
    /// least 90 s, because some proxies send the response headers only with the first event or bookmark. A request that
    /// exceeds the limit fails with an error for which [`Error::is_unanswered`] returns `true`. Default: 60 s,
    /// kube-apiserver's time limit for lists.
    pub request_timeout: Duration,
    /// Receives the existing objects through a watch (a streaming list), and falls back to list requests if this fails.
    /// Default: true.
    pub streaming_lists: bool,
    /// Time for which watches that end with an internal server error are restarted immediately. Default: zero, which
    /// disables these restarts.
    pub internal_error_retry: Duration,
    /// Representation of stored objects.
    pub storage: Storage,
    keep: Keep,
    pub(crate) transform: Option<Transform>,
    pub(crate) on_error: Option<OnError>,
    kind: std::marker::PhantomData<fn(K)>,
}

impl<K: Cacheable> ReflectorOptions<K> {
    /// Removes `metadata.managedFields` from objects before any transform.
    #[must_use]
    pub fn strip_managed_fields(mut self) -> Self {
        self.keep.managed = Managed::Cut;
        self
    }

    /// Sets a function that changes each object before it is stored. The function is called once for each received
    /// state, and should be idempotent. It is not called for objects that are missing from a new list. A failure or
    /// panic is passed to the [error handler](Self::on_error); the cache keeps the previous state of the object, if
    /// any, and handlers do not receive a deletion.
    ///
    /// The function should keep `metadata.uid`. Without it, a deletion counts as received at once, so controllers do
    /// not wait until the cache has received the deletions of a reconcile.
    #[must_use]
    pub fn transform<F, E>(mut self, transform: F) -> Self
    where
        K: Serialize,
        F: Fn(&mut K) -> Result<(), E> + Send + Sync + 'static,
        E: fmt::Display,
    {
        self.transform = Some(Arc::new(move |key, text| {
            let unreadable = |err| Error::decode(key.to_string(), err);
            let mut object: K = serde_json::from_str(text).map_err(unreadable)?;
            let refused = |why: &E| Error::refused(format!("{key} could not be transformed: {why}"));
            transform(&mut object).map_err(|err| refused(&err))?;
            serde_json::to_string(&object).map_err(unreadable)
        }));
        self
    }

    /// Sets the function that is called with the error if a list fails or a watch cannot be opened (client-go's
    /// `WatchErrorHandler`), and with each error of an object that cannot be decoded or transformed. Errors that end an
    /// open watch are only logged. The function replaces the default, which logs the error, and must return quickly.
    #[must_use]
    pub fn on_error(mut self, handler: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Arc::new(handler));
        self
    }

    /// Decodes and transforms an object for the store. Converts panics of user code to errors.
    pub(crate) fn object(&self, key: ObjectKey, text: &str, header: &Header<'_>) -> Result<CachedObject<K>, Error> {
        if key.name().is_empty() {
            return Err(Error::refused("an object has no name"));
        }
        // `K` and the transform are user code. A panic would end the informer, and the cache would never be updated
        // again.
        catch_unwind(AssertUnwindSafe(|| self.read(key, text, header))).unwrap_or_else(|panic| {
            let (key, text) = (header.key(), text_of_panic(&*panic));
            Err(Error::refused(format!("{key} could not be decoded: panic: {text}")))
        })
    }

    fn read(&self, key: ObjectKey, text: &str, header: &Header<'_>) -> Result<CachedObject<K>, Error> {
        let Some(transform) = &self.transform else {
            return CachedObject::read(key, text, text, header, &self.keep());
        };
        let whole = match self.keep.managed {
            Managed::Keep => Cow::Borrowed(text),
            Managed::Cut => crate::object::cut_managed_fields(text, header),
        };
        let transformed = transform(&key, &whole)?;
        let (header, result) = Header::read_whole(&transformed).map_err(|err| Error::decode("an object", err))?;
        let keep = Keep {
            managed: Managed::Keep,
            ..self.keep()
        };
        CachedObject::read(header.key(), text, result, &header, &keep)
    }

    /// Creates an object from the received text, although the text could not be [decoded or transformed](Self::object).
    pub(crate) fn unread(&self, text: &str, header: &Header<'_>) -> Result<CachedObject<K>, Error> {
        let keep = Keep {
            storage: Storage::Encoded,
            ..self.keep()
        };
        CachedObject::read(header.key(), text, text, header, &keep)
    }

    /// Returns `true` if these options would create the same object from the received text.
    pub(super) fn is_from(&self, object: &CachedObject<K>, text: &str, header: &Header<'_>) -> bool {
        object.is_from(text, header, self.keep.managed)
    }

    fn keep(&self) -> Keep {
        Keep {
            storage: self.storage,
            ..self.keep.clone()
        }
    }

    /// Returns the minimum and maximum duration of a watch, in seconds.
    pub(crate) fn watch_seconds(&self) -> (u64, u64) {
        let most = u64::from(u32::MAX);
        let least = self.min_watch_timeout.max(MIN_WATCH_TIMEOUT).as_secs().min(most);
        (least, least.saturating_mul(2).min(most))
    }

    /// Returns the time after which a watch is considered dead even if it has not ended.
    pub(super) fn longest_watch(&self) -> Duration {
        Duration::from_secs(self.watch_seconds().1) + super::watch::GRACE
    }

    pub(crate) fn report_unread(&self, source: &str, err: &Error) {
        match &self.on_error {
            Some(handler) => tell(handler, source, err),
            None => tracing::error!(source, %err, "an object cannot be read"),
        }
    }

    pub(crate) fn report(&self, source: &str, err: &Error) {
        match &self.on_error {
            Some(handler) => tell(handler, source, err),
            None if err.is_expired() => tracing::debug!(source, %err, "the watch expired"),
            None => tracing::error!(source, %err, "failed to list and watch"),
        }
    }
}

fn tell(handler: &OnError, source: &str, err: &Error) {
    if catch_unwind(AssertUnwindSafe(|| handler(err))).is_err() {
        tracing::error!(source, %err, "the error handler panicked");
    }
}

impl<K> Default for ReflectorOptions<K> {
    fn default() -> Self {
        Self {
            seed: 0,
            backoff: Backoff::default(),
            page_size: None,
            min_watch_timeout: MIN_WATCH_TIMEOUT,
            request_timeout: REQUEST_TIMEOUT,
            streaming_lists: true,
            internal_error_retry: Duration::ZERO,
            storage: Storage::default(),
            keep: Keep::default(),
            transform: None,
            on_error: None,
            kind: std::marker::PhantomData,
        }
    }
}

impl<K> Clone for ReflectorOptions<K> {
    fn clone(&self) -> Self {
        Self {
            seed: self.seed,
            backoff: self.backoff,
            page_size: self.page_size,
            min_watch_timeout: self.min_watch_timeout,
            request_timeout: self.request_timeout,
            streaming_lists: self.streaming_lists,
            internal_error_retry: self.internal_error_retry,
            storage: self.storage,
            keep: self.keep.clone(),
            transform: self.transform.clone(),
            on_error: self.on_error.clone(),
            kind: std::marker::PhantomData,
        }
    }
}

impl<K> fmt::Debug for ReflectorOptions<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReflectorOptions")
            .field("seed", &self.seed)
            .field("backoff", &self.backoff)
            .field("page_size", &self.page_size)
            .field("streaming_lists", &self.streaming_lists)
            .field("storage", &self.storage)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::default(5, (300, 600))]
    #[case::below_five_minutes(1, (300, 600))]
    #[case::above_five_minutes(20, (1200, 2400))]
    #[case::unlimited(u64::MAX / 60, (u64::from(u32::MAX), u64::from(u32::MAX)))]
    fn watch_timeout_is_between_the_minimum_and_twice_the_minimum(#[case] minutes: u64, #[case] seconds: (u64, u64)) {
        let options = ReflectorOptions::<Pod> {
            min_watch_timeout: Duration::from_secs(minutes * 60),
            ..ReflectorOptions::default()
        };
        assert_eq!(options.watch_seconds(), seconds);
    }
}
