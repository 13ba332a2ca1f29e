//! Kinds of faults that an exploration can try.

use std::ops::BitOr;

use super::faults::Kind;

/// Kinds of faults, which can be joined by `|`. See [`Explore::faults`](crate::explore::Explore::faults).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults(u16);

/// Kills controllers before and after each write and each call to a system outside of the API, and before each event,
/// and restarts them with empty caches after 1 or 12 s. A write of a killed controller may still reach the server 20 s
/// later. Also restarts each controller after all work has been done. Only affects controllers started by
/// [`TestCluster::controller`](crate::TestCluster::controller) or
/// [`TestCluster::controller_over`](crate::TestCluster::controller_over).
pub const fn crashes() -> Faults {
    Faults(1)
}

/// Fails requests: with 409 if the request contains a version of the object, as after a concurrent write; with 410 for
/// watches, for continued lists and for lists of an exact revision; with 403 for creates, as if a quota were exhausted;
/// with 429, 500 and 503; by losing the response to a completed request; and by not responding for 30 s, whether or not
/// the request completed. Also fails calls to systems outside of the API, once or for 12 s.
pub const fn errors() -> Faults {
    Faults(2)
}

/// Disturbs watches: holds them for 1 or 12 s, ends them, keeps them silent for a minute until the connection breaks,
/// expires them with 410 so that the client must list again, with or without a preceding silence, and delivers an event
/// twice. Bookmarks are omitted, except for the bookmark at the end of the initial state, which is delayed for 12 s or
/// lost because the connection breaks. Lists and reads of one object that allow it (`resourceVersion=0`) return an
/// older state.
pub const fn stale_watches() -> Faults {
    Faults(4)
}

/// Reorders messages: holds a request or an event for 1 ms, during which all other pending messages are delivered, or
/// holds a request or a call to a system outside of the API for 1 s, or the start of a watch for 12 s. Requests of the
/// server's own workers are delayed by 1 or 12 s. A write may also reach the server 20 s after its connection broke.
pub const fn delays() -> Faults {
    Faults(8)
}

/// Disconnects a running client for 12 or 40 s, as in a network partition. With two replicas, the former leader
/// reconnects while the new leader is active.
pub const fn pauses() -> Faults {
    Faults(16)
}

/// Sets the clock of a client half a minute ahead or behind. This moves the times that the client writes into Leases
/// and reads from them. Only affects clients that write Leases.
pub const fn clock_skew() -> Faults {
    Faults(32)
}

/// Permitted but unusual behaviour of a server: revisions that exceed 32 bits and the integers that floating-point
/// numbers represent exactly, small pages of lists, and the refusal of streaming lists (422), as without the feature
/// `WatchList`.
pub const fn variants() -> Faults {
    Faults(64)
}

/// Continues the test during a fault, as users do: neither [`settle`](crate::TestCluster::settle) nor
/// [`eventually`](crate::TestCluster::eventually) waits for the end of the fault. Combined with faults of other kinds
/// that last at least 12 s. If the test advances the clock to its next change instead of waiting, reads are delayed
/// until after this change.
pub const fn overlaps() -> Faults {
    Faults(128)
}

/// Stops processes by SIGSTOP and continues them, stops them by their stop signal and restarts them, delays responses
/// to writes, restarts the API server, and returns older states in lists after a restart. Only affects controllers that
/// run in separate processes.
pub(crate) const fn of_processes() -> Faults {
    Faults(256)
}

/// All kinds of faults.
#[cfg(all(feature = "processes", unix))]
const KINDS: [Kind; 9] = [
    Kind::Crash,
    Kind::Error,
    Kind::Watch,
    Kind::Delay,
    Kind::Pause,
    Kind::Clock,
    Kind::Variant,
    Kind::Overlap,
    Kind::Process,
];

impl Faults {
    /// Returns all kinds of faults. This is the default.
    pub const fn all() -> Self {
        Self(255)
    }

    /// Returns the name of a kind in options and reports.
    pub(crate) const fn name(kind: Kind) -> &'static str {
        match kind {
            Kind::Crash => "crashes",
            Kind::Error => "errors",
            Kind::Watch => "stale_watches",
            Kind::Delay => "delays",
            Kind::Pause => "pauses",
            Kind::Clock => "clock_skew",
            Kind::Variant => "variants",
            Kind::Overlap => "overlaps",
            Kind::Process => "processes",
        }
    }

    /// Lists the names of the kinds.
    #[cfg(all(feature = "processes", unix))]
    pub(crate) fn names() -> Vec<&'static str> {
        KINDS.map(Self::name).to_vec()
    }

    /// Returns the kind with this name.
    #[cfg(all(feature = "processes", unix))]
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let kind = KINDS.into_iter().find(|it| Self::name(*it) == name)?;
        Some(Self::of(kind))
    }

    const fn of(kind: Kind) -> Self {
        match kind {
            Kind::Crash => crashes(),
            Kind::Error => errors(),
            Kind::Watch => stale_watches(),
            Kind::Delay => delays(),
            Kind::Pause => pauses(),
            Kind::Clock => clock_skew(),
            Kind::Variant => variants(),
            Kind::Overlap => overlaps(),
            Kind::Process => of_processes(),
        }
    }

    pub(crate) fn has(self, kind: Kind) -> bool {
        let Self(bit) = Self::of(kind);
        self.0 & bit != 0
    }
}

impl BitOr for Faults {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
