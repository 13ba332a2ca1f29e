//! `Shard`: restricts a controller to the keys that this process owns, if several processes share the keys.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::Error;

/// Determines the keys that this process may work on.
pub(crate) trait Shard<R>: Send + Sync {
    /// Begins work on a key. Returns `None` if another process owns the key. The key is then set aside until this
    /// process owns it again.
    fn begin(&self, key: &R) -> Option<Stay>;

    /// Sets a key aside until this process owns it again. Called when work on the key was aborted.
    fn set_aside(&self, key: &R);
}

/// Issues [`Stay`]s and is notified of their end.
pub(crate) trait Hold: Send + Sync {
    /// Checks that this process may still work on its keys.
    ///
    /// # Errors
    ///
    /// Fails if the time for which this process may work on its keys has passed.
    fn check(&self) -> Result<(), Error>;

    /// Ends work on a key. `place` identifies the group of keys that it belongs to.
    fn end(&self, place: u64);
}

/// A guard for work on a key. This process keeps the key until the guard is dropped, or until the key is lost.
pub(crate) struct Stay {
    place: u64,
    permit: Permit,
}

/// Permission of a reconcile to write.
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

    /// Runs a future until it completes, or until the key is lost. In the latter case, it is dropped at its next
    /// `.await`, further writes are refused, and `None` is returned.
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
/// Fails if this process has lost the key of the reconcile.
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
