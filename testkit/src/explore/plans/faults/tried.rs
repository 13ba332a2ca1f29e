//! `Tried`: the messages at which a fault is tried, each with a rank by which faults are ordered.

use std::sync::Arc;
use std::time::Duration;

use super::value::Value;
use crate::explore::trace::{Request, Step};

/// A short and a long duration. The short one allows one retry; the long one outlasts one or two calls of `settle` in
/// the scenario.
pub(crate) const SHORT: Value = Value::Time(Duration::from_secs(1));
pub(crate) const LONG: Value = Value::Time(Duration::from_secs(12));

/// Delay during which all other pending messages are delivered.
pub(crate) const INSTANT: Value = Value::Time(Duration::from_millis(1));

/// Time until a silent connection breaks.
pub(crate) const SILENCE: Value = Value::Time(Duration::from_secs(30));

/// The messages at which a fault is tried, by message type.
#[derive(Clone, Copy)]
pub(crate) struct Tried {
    pub(crate) writes: &'static [Try],
    /// Reads of a single object.
    pub(crate) gets: &'static [Try],
    /// Reads of the served groups, resources and version.
    pub(crate) discovery: &'static [Try],
    pub(crate) lists: &'static [Try],
    pub(crate) watches: &'static [Try],
    pub(crate) events: &'static [Try],
    pub(crate) bookmarks: &'static [Try],
    /// Bookmarks at the end of the initial state.
    pub(crate) initial_ends: &'static [Try],
    /// Calls outside of the API.
    pub(crate) calls: &'static [Try],
    /// Requests of the server's own workers.
    pub(crate) workers: &'static [Try],
    /// Faults that are not tied to a message: variants of a whole run, and restarts after all work has been done.
    pub(crate) whole: fn(&[Step], &[Arc<str>]) -> Vec<Whole>,
}

impl Tried {
    pub(crate) const NEVER: Self = Self {
        writes: &[],
        gets: &[],
        discovery: &[],
        lists: &[],
        watches: &[],
        events: &[],
        bookmarks: &[],
        initial_ends: &[],
        calls: &[],
        workers: &[],
        whole: |_, _| Vec::new(),
    };
}

/// A fault with a value, to try at a message.
#[derive(Clone, Copy)]
pub(crate) struct Try {
    /// Faults with a lower rank are tried first.
    pub(crate) rank: u8,
    pub(crate) value: Value,
    /// Returns `true` if the fault can be tried at this request.
    pub(crate) is_possible: fn(&Seen<'_>) -> bool,
}

/// A request at which a fault may be tried.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) request: &'a Request,
    /// Set if the request follows another fault or, in explorations of a spec, the change of the spec.
    pub(crate) is_second: bool,
    /// Set if the client can notice that the request arrived late.
    pub(crate) may_be_late: bool,
    /// Number of writes that the test has made to objects of the resource; a deletion counts twice, since finalizers
    /// may delay it. Always 0 in virtual time.
    pub(crate) changes: usize,
}

pub(crate) const fn at(rank: u8, value: Value) -> Try {
    Try {
        rank,
        value,
        is_possible: |_| true,
    }
}

impl Try {
    /// Restricts the try to requests for which the condition holds.
    pub(crate) const fn of(self, is_possible: fn(&Seen<'_>) -> bool) -> Self {
        Self { is_possible, ..self }
    }
}

/// A fault that is not tied to a message.
pub(crate) struct Whole {
    pub(crate) rank: u8,
    /// Index of a step in the trace, which determines the order among the tried faults.
    pub(crate) at: usize,
    pub(crate) value: Value,
    /// The client or controller concerned, or the server.
    pub(crate) point: String,
}
