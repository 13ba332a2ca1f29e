//! `Gate`: the events that one watch may deliver now, including injected ones.

use std::collections::VecDeque;
use std::task::Waker;

use super::{HeldEvent, Injected};

/// Flow of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Immediately.
    #[default]
    Open,
    /// Lets this number of events pass, and holds the rest until it is opened.
    Held(u64),
    /// Delivers nothing, not even the end of the watch: the connection is half-open.
    Silent,
}

/// Treatment of a kind of bookmarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bookmarks {
    /// They are sent.
    #[default]
    Sent,
    /// Bookmarks are withheld.
    Withheld,
}

/// Form in which an event is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// Once.
    Once,
    /// And once more.
    Twice,
    /// Sends at most this number of bytes, and then breaks the connection.
    Part(usize),
}

/// Next step of a watch.
#[derive(Debug)]
pub(crate) enum GateStep {
    /// This event must be delivered first.
    Put(Injected),
    /// Events are delivered immediately.
    Open,
    /// Delivers nothing, and publishes the pending events to the test.
    Held,
    /// Nothing.
    Silent,
}

/// The state of one watch as a test controls it.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Events that a test injected, oldest first; they pass a held gate.
    pub(crate) injected: VecDeque<Injected>,
    pub(crate) flow: Flow,
    /// Number of next events that are sent twice.
    pub(crate) duplicates: u64,
    /// The next event is cut after this number of bytes.
    pub(crate) cut_inside: Option<usize>,
    /// Bookmarks.
    pub(crate) bookmarks: Bookmarks,
    /// The bookmark that ends the initial state.
    pub(crate) initial_end: Bookmarks,
    /// Events that are held.
    pub(crate) held: Vec<HeldEvent>,
    /// Number of delivered events, including bookmarks.
    pub(crate) delivered: u64,
    /// The last delivered resourceVersion.
    pub(crate) last_revision: u64,
    /// The revision up to which all events have been delivered.
    pub(crate) position: u64,
    pub(crate) has_ended: bool,
    pub(crate) waker: Option<Waker>,
}

impl Gate {
    /// Returns the next step.
    pub(crate) fn step(&mut self) -> GateStep {
        if self.flow == Flow::Silent {
            return GateStep::Silent;
        }
        if let Some(injected) = self.injected.pop_front() {
            return GateStep::Put(injected);
        }
        match self.flow {
            Flow::Held(0) => GateStep::Held,
            Flow::Open | Flow::Held(_) | Flow::Silent => GateStep::Open,
        }
    }

    /// Counts an event that is about to be sent, and returns how to send it.
    pub(crate) fn sends(&mut self, revision: u64) -> Sending {
        self.delivered += 1;
        if revision > 0 {
            self.last_revision = revision;
        }
        if let Flow::Held(more) = &mut self.flow {
            *more = more.saturating_sub(1);
        }
        if let Some(bytes) = self.cut_inside.take() {
            return Sending::Part(bytes);
        }
        match self.duplicates.checked_sub(1) {
            Some(left) => {
                self.duplicates = left;
                Sending::Twice
            }
            None => Sending::Once,
        }
    }
}
