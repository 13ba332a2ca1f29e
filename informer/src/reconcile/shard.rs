//! `Shard`: the keys that this process works on, if several processes share them.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::Error;

/// Decides which keys this process works on.
pub(crate) trait Shard<R>: Send + Sync {
    /// Begins work on a key. Returns `None` if another process owns it now; the key is then set aside.
    fn begin(&self, key: &R) -> Option<Stay>;

    /// Sets a key aside after its work was dropped, until this process owns it again.
    fn set_aside(&self, key: &R);
}

/// Owner of [`Stay`]s.
pub(crate) trait Hold: Send + Sync {
    /// # Errors
    ///
    /// If the time for which this process may work on its keys is over.
    fn check(&self) -> Result<(), Error>;

    /// Ends work on a key of this place.
    fn end(&self, place: u64);
}

/// Guard of a key: this process owns the key until it is dropped or lost.
pub(crate) struct Stay {
    place: u64,
    permit: Permit,
}

/// Permit for the writes of a reconcile.
#[derive(Clone)]
struct Permit {
    hold: Arc<dyn Hold>,
    lost: CancellationToken,
}

tokio::task_local! {
    static PERMIT: Permit;
}

impl Stay {
    /// `lost` is cancelled when this process loses the key before the work has ended.
    pub(crate) fn new(place: u64, hold: Arc<dyn Hold>, lost: CancellationToken) -> Self {
        Self {
            place,
            permit: Permit { hold, lost },
        }
    }

    /// Runs a future. When the key is lost, the future is dropped at its next `.await` and its writes are refused.
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
/// If it has lost its key.
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
