//! `lose`: the request completes, and its response is lost.

use std::time::Duration;

use super::effects::{Effects, OnAnswer};
use super::row::{FaultRow, Kind, Names};
use super::tried::{Tried, at};
use super::value::{Takes, Value};

pub(super) const ROW: FaultRow = FaultRow {
    word: "lose",
    takes: Takes::Nothing,
    kind: |_| Kind::Error,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        writes: &[at(1, Value::Nothing)],
        calls: &[at(1, Value::Nothing)],
        ..Tried::NEVER
    },
    effects: |_| Effects {
        answer: Some(OnAnswer::Break(Duration::ZERO)),
        ..Effects::NONE
    },
    words: |it, _| format!("execute {} of {} and lose the response", it.what, it.client),
};
