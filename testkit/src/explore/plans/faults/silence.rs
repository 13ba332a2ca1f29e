//! `silence` and `silence-after`: the client does not receive a response, and the connection breaks after a while.

use super::effects::{Effects, OnAnswer, OnRequest};
use super::row::{FaultRow, Kind, Names};
use super::tried::{SILENCE, Tried, at};
use super::value::Takes;

pub(super) const BEFORE: FaultRow = FaultRow {
    word: "silence",
    takes: Takes::Time,
    kind: |_| Kind::Error,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        writes: &[at(5, SILENCE)],
        gets: &[at(5, SILENCE)],
        discovery: &[at(5, SILENCE)],
        lists: &[at(6, SILENCE)],
        ..Tried::NEVER
    },
    effects: |time| Effects {
        request: Some(OnRequest::Lose(time.time())),
        ..Effects::NONE
    },
    words: |it, time| {
        format!(
            "lose {} of {}; the connection breaks after {:?}",
            it.what,
            it.client,
            time.time()
        )
    },
};

pub(super) const AFTER: FaultRow = FaultRow {
    word: "silence-after",
    takes: Takes::Time,
    kind: |_| Kind::Error,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        writes: &[at(4, SILENCE)],
        ..Tried::NEVER
    },
    effects: |time| Effects {
        answer: Some(OnAnswer::Break(time.time())),
        ..Effects::NONE
    },
    words: |it, time| {
        format!(
            "execute {} of {} without a response; the connection breaks after {:?}",
            it.what,
            it.client,
            time.time()
        )
    },
};
