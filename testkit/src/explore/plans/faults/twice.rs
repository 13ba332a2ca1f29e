//! `twice`: an event is delivered twice.

use super::effects::{Effects, OnEvent};
use super::row::{FaultRow, Kind, Names};
use super::tried::{Tried, at};
use super::value::{Takes, Value};

pub(super) const ROW: FaultRow = FaultRow {
    word: "twice",
    takes: Takes::Nothing,
    kind: |_| Kind::Watch,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        events: &[at(5, Value::Nothing)],
        ..Tried::NEVER
    },
    effects: |_| Effects {
        event: Some(OnEvent::Repeat),
        ..Effects::NONE
    },
    words: |it, _| format!("deliver {} to {} twice", it.what, it.client),
};
