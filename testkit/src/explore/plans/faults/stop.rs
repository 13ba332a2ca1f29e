//! `stop`: a process is stopped by its stop signal after a write, and then started again.

use super::effects::{Effects, OnAnswer};
use super::row::{FaultRow, Kind, Names};
use super::tried::{SHORT, Tried, at};
use super::value::Takes;

pub(super) const ROW: FaultRow = FaultRow {
    word: "stop",
    takes: Takes::Time,
    kind: |_| Kind::Process,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        writes: &[at(5, SHORT)],
        ..Tried::NEVER
    },
    effects: |time| Effects {
        answer: Some(OnAnswer::Stop(time.time())),
        ..Effects::NONE
    },
    words: |it, _| {
        format!(
            "stop the process of {} (SIGTERM, unless the scenario sets another signal) after {}, and start it again",
            it.client, it.what
        )
    },
};
