//! `late` and `crash-late`: a request reaches the server after its sender has given up or died.

use std::time::Duration;

use fake_apiserver::Verb;

use super::effects::{Effects, OnRequest};
use super::row::{FaultRow, Kind, Names};
use super::tried::{Seen, Tried, at};
use super::value::{Takes, Value};

/// Delay that exceeds the time in which a Lease of fifteen seconds changes its holder.
const LATE: Value = Value::Time(Duration::from_secs(20));

pub(super) const ROW: FaultRow = FaultRow {
    word: "late",
    takes: Takes::Time,
    kind: |_| Kind::Delay,
    names: Names::Message,
    shows_old: true,
    tried: Tried {
        writes: &[at(6, LATE).of(is_noticed)],
        ..Tried::NEVER
    },
    effects: |time| Effects {
        request: Some(OnRequest::ArriveLate {
            after: time.time(),
            crashes: false,
        }),
        ..Effects::NONE
    },
    words: |it, time| {
        format!(
            "break the connection of {} at {}; the request reaches the server {:?} later",
            it.client,
            it.what,
            time.time()
        )
    },
};

pub(super) const CRASH: FaultRow = FaultRow {
    word: "crash-late",
    takes: Takes::Time,
    kind: |_| Kind::Crash,
    names: Names::Message,
    shows_old: true,
    tried: Tried {
        writes: &[at(5, LATE).of(is_noticed)],
        ..Tried::NEVER
    },
    effects: |time| Effects {
        request: Some(OnRequest::ArriveLate {
            after: time.time(),
            crashes: true,
        }),
        ..Effects::NONE
    },
    words: |it, time| {
        format!(
            "crash {} at {}; the request reaches the server {:?} later, and the controller restarts 1s after the crash",
            it.client,
            it.what,
            time.time()
        )
    },
};

/// Returns `true` if the client can notice that the request arrived late. Creates are excluded, because everything that
/// belongs to the object may have been deleted in the meantime.
fn is_noticed(seen: &Seen<'_>) -> bool {
    seen.may_be_late && seen.request.verb != Verb::Create
}
