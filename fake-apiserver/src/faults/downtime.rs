//! `Downtime`: the unavailability of a server during a restart.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{Either, select};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Effect of a restart on the history of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestartLog {
    /// The history is kept, so watches can resume from their last version.
    Kept,
    /// The history is lost: a watch from an earlier version returns 410 Expired.
    Lost,
}

/// The downtime of a server, which clones share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Downtime {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The end of the current downtime, and the clients that are exempt from it.
    away: Mutex<Option<(Instant, Vec<String>)>>,
    began: Notify,
}

impl Downtime {
    fn lock(&self) -> MutexGuard<'_, Option<(Instant, Vec<String>)>> {
        self.shared.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a downtime, and completes the calls of [`begins`](Self::begins).
    pub(crate) fn begin(&self, down: Duration, spared: &[&str]) {
        let spared = spared.iter().map(|it| (*it).to_owned()).collect();
        *self.lock() = Some((Instant::now() + down, spared));
        self.shared.began.notify_waiters();
    }

    /// Returns `true` if the server is down for a client.
    pub(crate) fn strikes(&self, client: &str) -> bool {
        let mut away = self.lock();
        match &*away {
            None => false,
            Some((until, _)) if Instant::now() >= *until => {
                *away = None;
                false
            }
            Some((_, spared)) => !spared.iter().any(|it| it == client),
        }
    }

    /// Completes when the next downtime begins.
    pub(crate) async fn begins(&self) {
        self.shared.began.notified().await;
    }

    /// Waits for `event`; returns `None` if a downtime begins first.
    pub(crate) async fn precedes<T>(&self, event: impl Future<Output = T>) -> Option<T> {
        match select(pin!(event), pin!(self.begins())).await {
            Either::Left((it, _)) => Some(it),
            Either::Right(_) => None,
        }
    }
}
