//! `Shard`: restricts a controller to the keys that this process owns, if several processes share the keys.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::Error;

/// Determines the keys that this process may work on.
pub(crate) trait Shard<R>: Send + Sync {
    /// Begins work on a key. Returns `None` if a different process owns the key; the key is then set aside until this
    /// process owns it again.
    fn begin(&self, key: &R) -> Option<Stay>;

    /// Sets a key aside until this process owns it again. Called when work on the key was aborted.
    fn set_aside(&self, key: &R);

    /// Adds the keys that this process gains to the queue, as after a start. Never returns. Calls the user's mapping
    /// functions, which may be slow, so it must not run on the task that renews the permission to work on keys.
    fn replay_gained(&self) -> BoxFuture<'_, ()>;
}

/// Keeps track of the [`Stay`]s of this process, which call [`end`](Self::end) when they are dropped.
pub(crate) trait Hold: Send + Sync {
    /// Checks that this process may still work on its keys.
    ///
    /// # Errors
    ///
    /// Fails if the period in which this process may work on its keys has ended.
    fn check(&self) -> Result<(), Error>;

    /// Ends work on a key. `place` is the position of the key in the hash space.
    fn end(&self, place: u64);
}

/// Guard for work on a key. This process owns the key until the guard is dropped, unless it loses the key earlier.
pub(crate) struct Stay {
    place: u64,
    permit: Permit,
}

/// Permission of a reconcile to send writes.
#[derive(Clone)]
struct Permit {
    hold: Arc<dyn Hold>,
    lost: CancellationToken,
}

tokio::task_local! {
    static PERMIT: Permit;
}

impl Stay {
    /// Creates a guard. `lost` is cancelled if this process loses the key before the guard is dropped.
    pub(crate) fn new(place: u64, hold: Arc<dyn Hold>, lost: CancellationToken) -> Self {
        Self {
            place,
            permit: Permit { hold, lost },
        }
    }

    /// Runs a future until it completes, or until this process loses the key. In the latter case, drops the future at
    /// its next `.await`, refuses further writes, and returns `None`.
    pub(crate) async fn keep<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let permitted = PERMIT.scope(self.permit.clone(), future);
        self.permit.lost.run_until_cancelled(permitted).await
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.permit.hold.end(self.place);
    }
}

/// Checks that the current reconcile may write.
///
/// # Errors
///
/// Fails if this process has lost the key of the reconcile, or may no longer work on any key.
pub(super) fn check_permit() -> Result<(), Error> {
    let checked = PERMIT.try_with(|permit| {
        if permit.lost.is_cancelled() {
            return Err(Error::fenced(
                "refused: another process now owns the key of this reconcile",
            ));
        }
        permit.hold.check()
    });
    checked.unwrap_or(Ok(()))
}
