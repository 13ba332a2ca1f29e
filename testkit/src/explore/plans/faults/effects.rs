//! `Effects`: the effects of faults as data, by the stage at which they are applied.

use std::time::Duration;

/// The effects of a fault, by the stage at which they are applied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effects {
    /// Effect before a request reaches the server.
    pub(crate) request: Option<OnRequest>,
    /// Effect after a request or a call has completed and before the client receives the response.
    pub(crate) answer: Option<OnAnswer>,
    /// Effect before an event is delivered.
    pub(crate) event: Option<OnEvent>,
    /// Effect before a call outside of the API.
    pub(crate) call: Option<OnCall>,
    /// Effect on the whole run.
    pub(crate) run: Option<OnRun>,
}

impl Effects {
    pub(crate) const NONE: Self = Self {
        request: None,
        answer: None,
        event: None,
        call: None,
        run: None,
    };
}

/// Effect on a request that has not reached the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnRequest {
    /// The process is killed, and restarted after this time.
    Crash(Duration),
    /// The server responds with this status and does not execute the request.
    Refuse(u16),
    /// The request is lost; the connection breaks after this time.
    Lose(Duration),
    Wait(Duration),
    /// The client is disconnected for this time.
    CutOff(Duration),
    /// Another client first writes the object, so that its version changes.
    Overtake,
    /// The process is stopped for this time, and then continued.
    Freeze(Duration),
    /// The server restarts, and is down for this time.
    RestartServer(Duration),
    /// The server returns an older state: the state after this percentage of the revisions since the start of the run.
    ReadOld(u8),
    /// The server responds to a list with the objects as they were before the last creations, deletions and changes of
    /// specs. Contains the number of these changes.
    Rewind(u8),
    /// The request reaches the server after this time, when its client no longer waits for the response, because the
    /// connection broke or the process was killed immediately.
    ArriveLate {
        after: Duration,
        crashes: bool,
    },
}

/// Effect on a response that has not reached the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnAnswer {
    /// The process is killed, and restarted after this time.
    Crash(Duration),
    /// The connection breaks after this time.
    Break(Duration),
    /// The response is delivered after this time.
    Wait(Duration),
    /// The process is stopped by its stop signal, then receives the response, and is started again when it has exited.
    /// The fault lasts for this time.
    Stop(Duration),
}

/// Effect on an event that has not reached the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnEvent {
    /// The process is killed, and restarted after this time.
    Crash(Duration),
    /// The watch is silent for this time, and then delivers all events.
    Hold(Duration),
    /// The watch is silent for this time, and then expires.
    Miss(Duration),
    /// The watch is silent for this time, and then its connection breaks.
    HalfOpen(Duration),
    Expire,
    End,
    LeaveOut,
    Repeat,
}

/// Effect on a call that has not been made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnCall {
    /// The process is killed, and restarted after this time.
    Crash(Duration),
    Fail,
    Wait(Duration),
    /// All calls to the external system fail for this time.
    Outage(Duration),
}

/// Effect on a whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnRun {
    /// The test does not wait for the end of the faults.
    ContinueEarly,
    /// The clock of the client is ahead by this number of milliseconds (behind if it is negative).
    Skew(i64),
    SmallPages,
    LargeVersions,
    /// The controller is restarted after all work has been done.
    RestartAtEnd,
}
