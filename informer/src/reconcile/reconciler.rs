//! `Reconciler`: user code that receives a key, compares the actual with the desired state, and acts.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::reconcile_error::ReconcileError;
use crate::ObjectKey;

/// A request to reconcile a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request<R = ObjectKey> {
    /// The key, usually of an object. If the object no longer exists, the reconciler should clean up the object's
    /// resources.
    pub key: R,
    /// Number of failures of the key since its last success, as recorded by the rate limiter. Terminal errors are not
    /// counted.
    pub failures: u32,
    /// Priority of the key in the queue. Requeued keys keep it.
    pub priority: i32,
    /// Number of this call of the reconciler, starting at 1 in each controller. Distinguishes the log lines of
    /// different calls.
    pub id: u64,
    /// Cancelled when the controller must stop (Go's `ctx.Done()`). The controller waits for running reconciles, so
    /// long reconciles should check this and return. Comparisons of requests ignore this field.
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
    /// Creates a request, for tests of reconcilers.
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

/// Reconciles keys. Implemented for all `Fn(Request) -> Future<Output = Result<Action, E>>`.
///
/// A reconciler is never called concurrently for the same key. It is also called for the keys of deleted objects.
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
    /// Reconciles a key. The future may be dropped at an await point, after a timeout or when leadership is lost; the
    /// remaining part of the function is then not executed.
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
#[must_use = "the action determines when the key is reconciled again"]
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
    /// Waits for the next change of the object. Resets the failures of the key.
    pub fn await_change() -> Self {
        Self::then(Then::Await)
    }

    /// Reconciles the key again after a delay. Resets the failures of the key. A delay of zero is the same as
    /// [`await_change`](Self::await_change), as in controller-runtime.
    pub fn requeue(after: Duration) -> Self {
        Self::then(if after.is_zero() {
            Then::Await
        } else {
            Then::After(after)
        })
    }

    /// Reconciles the key again at this time, or immediately if this time has passed. Resets the failures of the key.
    pub fn requeue_at(at: Instant) -> Self {
        Self::then(Then::At(at))
    }

    /// Reconciles the key again after a delay from the rate limiter, which counts this as a failure
    /// (controller-runtime's deprecated `Requeue`).
    pub fn back_off() -> Self {
        Self::then(Then::BackOff)
    }

    /// Sets the priority with which the key is added again.
    pub fn with_priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    fn then(then: Then) -> Self {
        Self { then, priority: None }
    }
}
