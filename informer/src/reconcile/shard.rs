//! `Shard`: which keys are for this process, where several share them.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::Error;

/// Decides which keys this process works on.
pub(crate) trait Shard<R>: Send + Sync {
    /// Begins to work on a key. `None` says that it is not for this process now; then it has been set aside.
    fn begin(&self, key: &R) -> Option<Stay>;

    /// Keeps a key of which the work was dropped, for when it is for this process again.
    fn set_aside(&self, key: &R);
}

/// The holder of a [`Stay`].
pub(crate) trait Hold: Send + Sync {
    /// # Errors
    ///
    /// If the time is over for which this process may work on its keys.
    fn check(&self) -> Result<(), Error>;

    /// Work on a key of this place has ended.
    fn end(&self, place: u64);
}

/// A key that is for this process as long as this lives and is not lost.
pub(crate) struct Stay {
    place: u64,
    permit: Permit,
}

/// Lets the writes of a reconcile pass.
#[derive(Clone)]
struct Permit {
    hold: Arc<dyn Hold>,
    lost: CancellationToken,
}

tokio::task_local! {
    static PERMIT: Permit;
}

impl Stay {
    /// `lost` is cancelled when the key is not for this process any more, although the work has not ended.
    pub(crate) fn new(place: u64, hold: Arc<dyn Hold>, lost: CancellationToken) -> Self {
        Self {
            place,
            permit: Permit { hold, lost },
        }
    }

    /// Runs a future, which is dropped where it waits when the key is lost. Its writes are refused from then on.
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

/// # Errors
///
/// If the reconcile that is being polled has lost its key.
pub(super) fn check_permit() -> Result<(), Error> {
    let checked = PERMIT.try_with(|permit| {
        if permit.lost.is_cancelled() {
            return Err(Error::refused(
                "refused: the key of this reconcile is for another process by now",
            ));
        }
        permit.hold.check()
    });
    checked.unwrap_or(Ok(()))
}
