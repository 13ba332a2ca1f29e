//! `Downtime`: a server that is restarted, and not there for a while.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Effect of a restart on the log of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartLog {
    /// All of it: watches go on where they were.
    Kept,
    /// Nothing: a watch from before is 410 Expired.
    Lost,
}

/// Until when the server is away, and for whom it is not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Downtime {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Guards the end of the present downtime, and the clients it spares.
    away: Mutex<Option<(Instant, Vec<String>)>>,
    began: Notify,
}

impl Downtime {
    fn lock(&self) -> MutexGuard<'_, Option<(Instant, Vec<String>)>> {
        self.shared.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins now, and breaks requests and watches in progress.
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

    /// Ready at the next restart.
    pub(crate) async fn begins(&self) {
        self.shared.began.notified().await;
    }
}
