//! `Gate`: determines which events a watch may deliver now, including injected events.

use std::collections::VecDeque;
use std::task::Waker;

use super::{HeldEvent, Injected};

/// Setting of a watch that determines which events are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Delivers events immediately.
    #[default]
    Open,
    /// Delivers this number of events, and then holds events until the watch is resumed.
    Held(u64),
    /// Delivers nothing, not even the end of the watch, as over a half-open connection.
    Silent,
}

/// Setting that determines whether bookmarks of one type are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bookmarks {
    /// Bookmarks are sent.
    #[default]
    Sent,
    /// Bookmarks are withheld.
    Withheld,
}

/// Form in which an event is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// Sends the event once.
    Once,
    /// Sends the event twice.
    Twice,
    /// Sends at most this number of bytes of the event, and then breaks the connection.
    Part(usize),
}

/// Next step of a watch.
#[derive(Debug)]
pub(crate) enum GateStep {
    /// Delivers an injected event before all others.
    Put(Injected),
    /// Delivers events immediately.
    Open,
    /// Delivers nothing; the test can inspect the pending events.
    Held,
    /// Delivers nothing.
    Silent,
}

/// The delivery state of one watch, controlled by a test.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Events injected by a test, oldest first. They are delivered even if the watch is held.
    pub(crate) injected: VecDeque<Injected>,
    pub(crate) flow: Flow,
    /// Number of upcoming events to send twice.
    pub(crate) duplicates: u64,
    /// Number of bytes of the next event after which the connection breaks.
    pub(crate) cut_inside: Option<usize>,
    /// Setting for bookmarks.
    pub(crate) bookmarks: Bookmarks,
    /// Setting for the bookmark that ends the initial state.
    pub(crate) initial_end: Bookmarks,
    /// Pending events while the watch is held.
    pub(crate) held: Vec<HeldEvent>,
    /// Number of delivered events, including bookmarks and errors.
    pub(crate) delivered: u64,
    /// The last delivered `resourceVersion`.
    pub(crate) last_revision: u64,
    /// Revision up to which all events were delivered or filtered out.
    pub(crate) position: u64,
    pub(crate) has_ended: bool,
    pub(crate) waker: Option<Waker>,
}

impl Gate {
    /// Returns the next step of the watch.
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
