//! `Reconciler`: the user's code. It gets a key, compares the actual with the desired state, and acts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ObjectKey;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// The key to reconcile, and the number of its failures.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request<R = ObjectKey> {
    /// Usually the key of an object. If the object is gone, clean up after it.
    pub key: R,
    /// Number of failures since the last success; 0 at first.
    pub failures: u32,
    /// The priority it had in the queue, which it keeps if it is worked on again.
    pub priority: i32,
    /// Number of the call within one controller, from 1: tells the log lines of one call from those of others.
    pub id: u64,
    /// Cancelled when the controller is to stop (Go's `ctx.Done()`). It waits for the reconciles in progress: one that
    /// takes long should look at this and return. It has no part in comparisons.
    pub stop: Arc<CancellationToken>,
}

impl<R: PartialEq> PartialEq for Request<R> {
    fn eq(&self, other: &Self) -> bool {
        let facts = |it: &Self| (it.failures, it.priority, it.id);
        self.key == other.key && facts(self) == facts(other)
    }
}

impl<R: Eq> Eq for Request<R> {}

impl<R> Request<R> {
    /// A request for a key, as a test of a reconciler makes it.
    pub fn new(key: R) -> Self {
        Self {
            key,
            failures: 0,
            priority: 0,
            id: 1,
            stop: Arc::default(),
        }
    }
}

/// Reconciles a key. Any `Fn(Request) -> Future<Output = Result<Action, E>>` is one.
///
/// It is never called for one key twice at a time, and is called for keys of objects that are gone, too.
///
/// ```
/// use std::time::Duration;
/// use informer::reconcile::{Action, ReconcileError, Reconciler, Request};
///
/// struct Greeter;
///
/// impl Reconciler for Greeter {
///     async fn reconcile(&self, request: Request) -> Result<Action, ReconcileError> {
///         if request.key.name().is_empty() {
///             return Err(ReconcileError::terminal("the name is invalid"));
///         }
///         Ok(Action::requeue(Duration::from_secs(300)))
///     }
/// }
/// ```
pub trait Reconciler<R = ObjectKey>: Send + Sync + 'static {
    /// Looks at the key and acts. What is dropped where it waits (at a timeout, or when leadership is lost) is not
    /// finished.
    fn reconcile(&self, request: Request<R>) -> impl Future<Output = Result<Action, ReconcileError>> + Send;
}

impl<R, F, Fut, E> Reconciler<R> for F
where
    F: Fn(Request<R>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, E>> + Send,
    E: Into<ReconcileError>,
    R: Send + 'static,
{
    fn reconcile(&self, request: Request<R>) -> impl Future<Output = Result<Action, ReconcileError>> + Send {
        let working = self(request);
        async { working.await.map_err(Into::into) }
    }
}

/// Result of a successful reconcile (controller-runtime's `Result`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it says when the key is worked on again"]
pub struct Action {
    pub(super) then: Then,
    pub(super) priority: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Await,
    After(Duration),
    At(Instant),
    BackOff,
}

impl Action {
    /// Nothing until something changes. Its failures are forgotten.
    pub fn await_change() -> Self {
        Self::then(Then::Await)
    }

    /// Once more after this time. Its failures are forgotten. Zero is [`await_change`](Self::await_change), as in
    /// controller-runtime.
    pub fn requeue(after: Duration) -> Self {
        Self::then(if after.is_zero() {
            Then::Await
        } else {
            Then::After(after)
        })
    }

    /// Once more at this instant, or at once if it has passed. Its failures are forgotten.
    pub fn requeue_at(at: Instant) -> Self {
        Self::then(Then::At(at))
    }

    /// Once more when the rate limiter allows it, counted as a failure (controller-runtime's deprecated `Requeue`).
    pub fn back_off() -> Self {
        Self::then(Then::BackOff)
    }

    /// With another priority than it had.
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    fn then(then: Then) -> Self {
        Self { then, priority: None }
    }
}

/// Error of a reconcile. Any error becomes one by `?`, and is retried with growing pauses.
pub struct ReconcileError {
    source: BoxError,
    is_terminal: bool,
}

impl ReconcileError {
    /// An error that trying again does not mend: the key is left until something changes (controller-runtime's
    /// `TerminalError`).
    pub fn terminal(source: impl Into<BoxError>) -> Self {
        Self {
            source: source.into(),
            is_terminal: true,
        }
    }

    /// Returns `true` if a retry cannot help.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// The error itself.
    pub fn into_inner(self) -> BoxError {
        self.source
    }
}

// Not an error itself, so that every error can become one.
impl<E: Into<BoxError>> From<E> for ReconcileError {
    fn from(source: E) -> Self {
        Self {
            source: source.into(),
            is_terminal: false,
        }
    }
}

impl fmt::Debug for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl fmt::Display for ReconcileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terminal = if self.is_terminal { "terminal error: " } else { "" };
        write!(f, "{terminal}{}", self.source)
    }
}
