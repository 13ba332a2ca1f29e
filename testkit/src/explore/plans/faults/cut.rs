//! `cut` and `expire`: a watch ends before an event; the client resumes it or must list again.

use super::effects::{Effects, OnEvent};
use super::row::{FaultRow, Kind, Names};
use super::tried::{Tried, at};
use super::value::{Takes, Value};

pub(super) const ROW: FaultRow = FaultRow {
    word: "cut",
    takes: Takes::Nothing,
    kind: |_| Kind::Watch,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        events: &[at(5, Value::Nothing)],
        ..Tried::NEVER
    },
    effects: |_| Effects {
        event: Some(OnEvent::End),
        ..Effects::NONE
    },
    words: |it, _| format!("end the watch of {} before {}", it.client, it.what),
};

pub(super) const EXPIRE: FaultRow = FaultRow {
    word: "expire",
    takes: Takes::Nothing,
    kind: |_| Kind::Watch,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        events: &[at(4, Value::Nothing)],
        ..Tried::NEVER
    },
    effects: |_| Effects {
        event: Some(OnEvent::Expire),
        ..Effects::NONE
    },
    words: |it, _| {
        format!(
            "expire the watch of {} before {} with 410 Gone, so that the client lists again",
            it.client, it.what
        )
    },
};
