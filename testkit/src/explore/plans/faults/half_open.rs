//! `half-open`: a watch of an unreachable server delivers nothing until its connection breaks.

use std::time::Duration;

use super::effects::{Effects, OnEvent};
use super::row::{FaultRow, Kind, Names};
use super::tried::{Tried, at};
use super::value::{Takes, Value};

/// Time after which the connection breaks.
const HALF_OPEN: Value = Value::Time(Duration::from_secs(60));

pub(super) const ROW: FaultRow = FaultRow {
    word: "half-open",
    takes: Takes::Time,
    kind: |_| Kind::Watch,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        events: &[at(6, HALF_OPEN)],
        initial_ends: &[at(6, HALF_OPEN)],
        ..Tried::NEVER
    },
    effects: |time| Effects {
        event: Some(OnEvent::HalfOpen(time.time())),
        ..Effects::NONE
    },
    words: |it, time| {
        format!(
            "deliver no events to {}, starting at {}; the connection of the watch breaks after {:?}",
            it.client,
            it.what,
            time.time()
        )
    },
};
