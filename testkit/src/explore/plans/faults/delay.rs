//! `delay` and `slow-answer`: a message, or only the response to a request, is delayed.

use super::effects::{Effects, OnAnswer, OnCall, OnEvent, OnRequest};
use super::row::{FaultRow, Kind, Names};
use super::tried::{INSTANT, LONG, SHORT, Tried, at};
use super::value::Takes;

pub(super) const ROW: FaultRow = FaultRow {
    word: "delay",
    takes: Takes::Time,
    kind: |_| Kind::Delay,
    names: Names::Message,
    shows_old: true,
    tried: Tried {
        writes: &[at(6, INSTANT), at(6, SHORT)],
        gets: &[at(6, INSTANT), at(6, SHORT)],
        discovery: &[at(6, INSTANT)],
        lists: &[at(5, SHORT)],
        watches: &[at(5, SHORT), at(5, LONG)],
        events: &[at(6, INSTANT)],
        calls: &[at(6, SHORT)],
        // The server's own controllers may be slow; other faults do not apply to them.
        workers: &[at(5, SHORT), at(6, LONG)],
        ..Tried::NEVER
    },
    effects: |time| Effects {
        request: Some(OnRequest::Wait(time.time())),
        event: Some(OnEvent::Hold(time.time())),
        call: Some(OnCall::Wait(time.time())),
        ..Effects::NONE
    },
    words: |it, time| format!("delay {} of {} by {:?}", it.what, it.client, time.time()),
};

pub(super) const ANSWER: FaultRow = FaultRow {
    word: "slow-answer",
    takes: Takes::Time,
    kind: |_| Kind::Process,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        writes: &[at(2, LONG)],
        ..Tried::NEVER
    },
    effects: |time| Effects {
        answer: Some(OnAnswer::Wait(time.time())),
        ..Effects::NONE
    },
    words: |it, time| {
        format!(
            "execute {} of {} and delay the response by {:?}",
            it.what,
            it.client,
            time.time()
        )
    },
};
