//! `hold` and `miss`: a watch is silent for some time, and then delivers its events or expires.

use super::effects::{Effects, OnEvent};
use super::row::{FaultRow, Kind, Names};
use super::tried::{LONG, SHORT, Tried, at};
use super::value::Takes;

pub(super) const ROW: FaultRow = FaultRow {
    word: "hold",
    takes: Takes::Time,
    kind: |_| Kind::Watch,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        events: &[at(1, LONG), at(3, SHORT)],
        // The end of the initial state must be delivered eventually.
        initial_ends: &[at(5, LONG)],
        ..Tried::NEVER
    },
    effects: |time| Effects {
        event: Some(OnEvent::Hold(time.time())),
        ..Effects::NONE
    },
    words: |it, time| {
        format!(
            "hold the watch of {} for {:?}, starting at {}",
            it.client,
            time.time(),
            it.what
        )
    },
};

pub(super) const MISS: FaultRow = FaultRow {
    word: "miss",
    takes: Takes::Time,
    kind: |_| Kind::Watch,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        events: &[at(2, LONG)],
        ..Tried::NEVER
    },
    effects: |time| Effects {
        event: Some(OnEvent::Miss(time.time())),
        ..Effects::NONE
    },
    words: |it, time| {
        format!(
            "hold the watch of {} for {:?}, starting at {}, then expire it with 410 Gone, so that the client lists \
             again",
            it.client,
            time.time(),
            it.what
        )
    },
};
