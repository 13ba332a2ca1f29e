//! What a test asked to go wrong. Consulted once a request and, through the open watches, once a stream; it knows the
//! vocabulary alone.

mod rule;
mod watches;

pub use rule::{Fault, FaultGuard, Seen, Verdict};
pub use watches::{WatchEventKind, WatchHandle};

pub(crate) use rule::Rules;
pub(crate) use watches::{Injected, OpenWatch, OpenWatches};

use crate::api::status::Status;

/// All faults of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// The installed rules.
    pub(crate) rules: Rules,
    /// The watches under way.
    pub(crate) watches: OpenWatches,
}

impl Faults {
    /// Asks the rules what is to happen to a request; fails where one of them says so. What it returns, if anything, is
    /// to be answered instead of what comes of the request.
    pub(crate) async fn on_request(&self, request: Seen<'_>) -> Result<Option<Status>, Status> {
        match self.rules.verdict(&request) {
            Verdict::Pass => Ok(None),
            Verdict::Fail(status) => Err(*status),
            Verdict::Lose(status) => Ok(Some(*status)),
            Verdict::Delay(duration) => {
                tokio::time::sleep(duration).await;
                Ok(None)
            }
        }
    }
}
