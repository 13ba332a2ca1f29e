//! `Gate`: the events that one watch may deliver now, those of a test included.

use std::collections::VecDeque;
use std::task::Waker;

use super::{HeldEvent, Injected};

/// Flow of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Flow {
    /// As they come.
    #[default]
    Open,
    /// Lets this number of events pass, then none until it is opened.
    Held(u64),
    /// None, nor the end of the watch: the other side is gone and the connection does not know.
    Silent,
}

/// Treatment of a kind of bookmarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bookmarks {
    /// They are sent.
    #[default]
    Sent,
    /// They are left out.
    Withheld,
}

/// Form in which an event is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// Once.
    Once,
    /// And once more.
    Twice,
    /// At most this number of its bytes, and then the connection breaks.
    Part(usize),
}

/// Next step of a watch.
#[derive(Debug)]
pub(crate) enum GateStep {
    /// This is to be delivered first.
    Put(Injected),
    /// Events pass as they come.
    Open,
    /// Delivers nothing, and shows the test the waiting events.
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
    /// The next so many events are sent twice.
    pub(crate) duplicates: u64,
    /// The next event is cut after so many bytes.
    pub(crate) cut_inside: Option<usize>,
    /// Those that say that nothing changed.
    pub(crate) bookmarks: Bookmarks,
    /// The one that ends the initial state.
    pub(crate) initial_end: Bookmarks,
    /// Events that wait behind a held gate.
    pub(crate) held: Vec<HeldEvent>,
    /// Events delivered so far, with bookmarks.
    pub(crate) delivered: u64,
    /// The resourceVersion of the last of them that had one.
    pub(crate) last_revision: u64,
    /// The revision up to which there is nothing more to deliver.
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

    /// Counts an event that is about to be sent, and says how it is.
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
