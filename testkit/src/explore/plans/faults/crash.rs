//! `crash` and `crash-after`: a controller is killed at a message, and restarted with empty caches.

use super::effects::{Effects, OnAnswer, OnCall, OnEvent, OnRequest};
use super::row::{FaultRow, Kind, Names};
use super::tried::{LONG, SHORT, Tried, at};
use super::value::{Takes, Value};

pub(super) const BEFORE: FaultRow = FaultRow {
    word: "crash",
    takes: Takes::Time,
    kind: |_| Kind::Crash,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        writes: &[at(2, SHORT), at(4, LONG)],
        events: &[at(2, LONG), at(3, SHORT)],
        calls: &[at(2, SHORT)],
        ..Tried::NEVER
    },
    effects: |down| Effects {
        request: Some(OnRequest::Crash(down.time())),
        event: Some(OnEvent::Crash(down.time())),
        call: Some(OnCall::Crash(down.time())),
        ..Effects::NONE
    },
    words: |it, down| format!("crash {} before {}{}", it.client, it.what, again(down)),
};

pub(super) const AFTER: FaultRow = FaultRow {
    word: "crash-after",
    takes: Takes::Time,
    kind: |_| Kind::Crash,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        writes: &[at(1, SHORT), at(3, LONG)],
        calls: &[at(1, SHORT), at(3, LONG)],
        ..Tried::NEVER
    },
    effects: |down| Effects {
        answer: Some(OnAnswer::Crash(down.time())),
        ..Effects::NONE
    },
    words: |it, down| format!("crash {} after {}{}", it.client, it.what, again(down)),
};

fn again(down: Value) -> String {
    format!("; it restarts {:?} later", down.time())
}
