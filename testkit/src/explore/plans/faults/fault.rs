//! `Fault`: the list of faults. Each fault is described by a [`FaultRow`] in a separate file.

use super::row::FaultRow;
use super::{
    conflict, crash, cut, delay, drop_bookmark, early, fail, freeze, half_open, hold, large_versions, late, lose,
    outage, pause, restart, rewind, server_restart, silence, skew, small_pages, stale, stop, twice,
};

/// Generates the enum, the list of its variants and the lookup of rows.
macro_rules! faults {
    ($(#[$about:meta])* pub(crate) enum Fault { $($(#[$doc:meta])+ $name:ident => $row:expr,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum Fault { $($(#[$doc])+ $name,)+ }

        impl Fault {
            /// All faults. If two of them are equally likely to find a bug at a message, the first one is tried first.
            pub(crate) const ALL: &'static [Fault] = &[$(Fault::$name),+];

            pub(crate) const fn row(self) -> &'static FaultRow {
                match self {
                    $(Fault::$name => { const ROW: &FaultRow = &$row; ROW })+
                }
            }
        }
    };
}

faults! {
/// Type of a fault.
pub(crate) enum Fault {
    /// The controller is killed before the request reaches the server, or before the event is delivered. It is
    /// restarted with empty caches after some time.
    CrashBefore => crash::BEFORE,
    /// The controller is killed after the request has completed and before the response is delivered.
    CrashAfter => crash::AFTER,
    /// The server responds with an HTTP status and does not execute the request.
    Fail => fail::ROW,
    /// The external system is unreachable for some time.
    Outage => outage::ROW,
    /// Another client first writes the object, so the server refuses a request that contains the earlier version (409).
    Conflict => conflict::ROW,
    /// The request completes, and the connection breaks before the client receives the response.
    Lose => lose::ROW,
    /// The request does not reach the server; the connection breaks after some time.
    Silence => silence::BEFORE,
    /// The server executes the request, but the client receives no response; the connection breaks after some time.
    SilenceAfter => silence::AFTER,
    /// The message is delayed for some time.
    Delay => delay::ROW,
    /// The connection breaks immediately, but the request still reaches the server after some time.
    Late => late::ROW,
    /// The controller is killed and restarted a second later; the request that it had sent reaches the server after
    /// some time.
    CrashLate => late::CRASH,
    /// Neither `settle` nor `eventually` waits for the end of the faults.
    Early => early::ROW,
    /// The client is disconnected for some time, starting with the request: a partition.
    Pause => pause::ROW,
    /// The read returns an older state, as from a lagging replica.
    Stale => stale::ROW,
    /// The watch is silent for some time, starting with the event, and then delivers all events.
    Hold => hold::ROW,
    /// The watch is silent for some time, starting with the event, and then expires with 410.
    Miss => hold::MISS,
    /// The watch ends before the event; the client resumes.
    Cut => cut::ROW,
    /// The watch expires with 410 instead of delivering the event.
    Expire => cut::EXPIRE,
    /// The event is delivered twice.
    Twice => twice::ROW,
    /// Starting with the event, the watch delivers neither events nor its end; the connection breaks after some time.
    HalfOpen => half_open::ROW,
    /// The bookmark is not delivered.
    Drop => drop_bookmark::ROW,
    /// The clock of the client is ahead or behind for the whole run.
    Skew => skew::ROW,
    /// The server responds with smaller pages to lists that have a limit.
    SmallPages => small_pages::ROW,
    /// The revisions of the server start at a large number.
    LargeVersions => large_versions::ROW,
    /// The controller is restarted after all work has been done.
    RestartAtEnd => restart::ROW,
    /// The process of the controller is stopped for some time (SIGSTOP).
    Freeze => freeze::ROW,
    /// The process of the controller is stopped by its stop signal after the request has completed, and started again
    /// when it has exited.
    Stop => stop::ROW,
    /// The list returns the objects as they were before the last creations, deletions and changes of specs.
    Rewind => rewind::ROW,
    /// The request completes, and its response arrives after some time.
    SlowAnswer => delay::ANSWER,
    /// The API server restarts before the request and is down for some time.
    ServerRestart => server_restart::ROW,
}
}

impl Fault {
    /// Returns the fault with this word in replay strings.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.row().word == word)
    }
}
