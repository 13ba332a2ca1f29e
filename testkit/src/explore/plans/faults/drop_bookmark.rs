//! `drop`: a bookmark is not delivered. Servers do not guarantee bookmarks.

use super::effects::{Effects, OnEvent};
use super::row::{FaultRow, Kind, Names};
use super::tried::{Tried, at};
use super::value::{Takes, Value};

pub(super) const ROW: FaultRow = FaultRow {
    word: "drop",
    takes: Takes::Nothing,
    kind: |_| Kind::Watch,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        bookmarks: &[at(6, Value::Nothing)],
        ..Tried::NEVER
    },
    effects: |_| Effects {
        event: Some(OnEvent::LeaveOut),
        ..Effects::NONE
    },
    words: |it, _| format!("do not deliver {} to {}", it.what, it.client),
};
