//! `outage`: an external system is unreachable for some time, so that retries fail as well.

use super::effects::{Effects, OnCall};
use super::row::{FaultRow, Kind, Names};
use super::tried::{LONG, Tried, at};
use super::value::Takes;

pub(super) const ROW: FaultRow = FaultRow {
    word: "outage",
    takes: Takes::Time,
    kind: |_| Kind::Error,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        calls: &[at(3, LONG)],
        ..Tried::NEVER
    },
    effects: |time| Effects {
        call: Some(OnCall::Outage(time.time())),
        ..Effects::NONE
    },
    words: |it, time| {
        format!(
            "fail {} of {client}, and all further calls of {client} to that system for {:?}",
            it.what,
            time.time(),
            client = it.client
        )
    },
};
