//! What a test asked to go wrong. Consulted once a request and, through the open watches, once a stream; it knows the
//! vocabulary alone.

mod verdict;
mod rule;
mod outcome;
mod watches;
mod gate;

pub use rule::{Fault, FaultGuard, Seen};
pub use verdict::{Decision, Held, Verdict, When};
pub use watches::{HeldEvent, WatchEventKind, WatchHandle};

pub(crate) use gate::{Sending, Step};
pub(crate) use outcome::{Broken, Outcome, Struck};
pub(crate) use rule::Rules;
pub(crate) use watches::{Injected, OpenWatch, OpenWatches};

/// All faults of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    /// The installed rules.
    pub(crate) rules: Rules,
    /// The watches under way.
    pub(crate) watches: OpenWatches,
}
