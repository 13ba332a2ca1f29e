//! Faults injected by a test. They are evaluated for each request and, through the open watches, for each event stream.
//!
//! ```
//! use fake_apiserver::{ApiServer, faults::{Effect, FaultRule}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::start();
//! let fault = server.inject_rule(FaultRule::new(Effect::NotFound))?;
//! let request = || http::Request::get("/api/v1/pods").body("");
//! assert_eq!(server.call(request()?).await.status(), 404);
//! assert_eq!(fault.hits(), 1);
//! drop(fault);
//! assert_eq!(server.call(request()?).await.status(), 200);
//! # Ok(())
//! # }
//! ```

mod verdict;
mod rule;
mod filter;
mod served;
mod described;
mod outcome;
mod downtime;
mod clocks;
mod watches;
mod gate;
mod watch_events;

pub use described::{Effect, Failure, FaultRule, RuleError};
pub use downtime::RestartLog;
pub use filter::{RequestFilter, is_client, is_for};
pub use rule::{Fault, FaultGuard, Seen};
pub use served::Unserved;
pub use verdict::{Decision, Held, Verdict, When};
pub use watch_events::{HeldEvent, WatchEventKind};
pub use watches::WatchHandle;

pub(crate) use clocks::Clocks;
pub(crate) use described::Described;
pub(crate) use downtime::Downtime;
pub(crate) use gate::{GateStep, Sending};
pub(crate) use outcome::{Broken, Lost, Outcome, Struck};
pub(crate) use rule::Rules;
pub(crate) use watch_events::Injected;
pub(crate) use watches::{OpenWatch, OpenWatches};

use std::time::Duration;

/// The faults of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// The installed rules.
    pub(crate) rules: Rules,
    /// The open watches.
    pub(crate) watches: OpenWatches,
    /// Downtime of the server, if any.
    pub(crate) downtime: Downtime,
    /// Clients with skewed clocks.
    pub(crate) clocks: Clocks,
}

impl Faults {
    /// Breaks all watches and the connections of requests that a fault delays, holds or leaves without a response, and
    /// refuses new requests for a while.
    pub(crate) fn restart(&self, down: Duration, spared: &[&str]) {
        self.downtime.begin(down, spared);
        self.watches.handles().iter().for_each(WatchHandle::cut);
    }
}
