//! Kinds of faults that are explored.

use std::ops::BitOr;

use super::plan::{Action, Kind};

/// Kinds of faults, to be joined by `|`. See [`Explore::faults`](super::Explore::faults).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults(u8);

/// Controllers die: before and after each write and before each event, and start anew with empty caches a second or
/// twelve later; and when all is done. Only those that were started by
/// [`TestCluster::controller`](crate::TestCluster::controller) can.
pub const fn crashes() -> Faults {
    Faults(1)
}

/// Requests fail: with 409 where a client names the version of an object, because another writer is faster; with 410
/// for watches and for pages of lists and lists of an exact revision, 429 and 500; they are done and the answer is
/// lost; there is no answer for half a minute, done or not done.
pub const fn errors() -> Faults {
    Faults(2)
}

/// Watches are held for a second or twelve, end, are silent for a minute until their connection breaks, expire with
/// 410, so that the client must list again, with or without having been silent before, and tell an event twice.
/// Bookmarks come late or never. Lists and reads of one object that allow it (`resourceVersion=0`) show an
/// older state.
pub const fn stale_watches() -> Faults {
    Faults(4)
}

/// Messages come in another order: a request or an event is held for a millisecond, in which everything else happens,
/// or for a second. What the server's own workers write comes a second or twelve later.
pub const fn delays() -> Faults {
    Faults(8)
}

/// A controller is cut off for twelve or forty seconds while it goes on, as by a partition: the one of two replicas
/// that leads meets the other when it comes back.
pub const fn pauses() -> Faults {
    Faults(16)
}

/// The clock of a client is half a minute ahead or behind, in the times it writes into Leases and reads of them; only
/// clients that write Leases.
pub const fn clock_skew() -> Faults {
    Faults(32)
}

/// Behaviour that a server may show and few do: revisions counted from a number that neither 32 bits nor a
/// floating-point number hold, or streaming lists refused (422), as without the feature `WatchList`.
pub const fn variants() -> Faults {
    Faults(64)
}

impl Faults {
    /// All faults: the default.
    pub const fn all() -> Self {
        Self(127)
    }

    pub(crate) fn has(self, action: Action) -> bool {
        let Self(bit) = match action.kind() {
            Kind::Crash => crashes(),
            Kind::Error => errors(),
            Kind::Watch => stale_watches(),
            Kind::Delay => delays(),
            Kind::Pause => pauses(),
            Kind::Clock => clock_skew(),
            Kind::Variant => variants(),
        };
        self.0 & bit != 0
    }
}

impl BitOr for Faults {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
