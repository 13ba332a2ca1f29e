//! `freeze`: a process is stopped by SIGSTOP for some time, and then continues.

use std::time::Duration;

use super::effects::{Effects, OnRequest};
use super::row::{FaultRow, Kind, Names};
use super::tried::{LONG, Tried, at};
use super::value::{Takes, Value};

/// Duration that exceeds a Lease of fifteen seconds, even after it has been shortened in real time.
const PAST_A_LEASE: Value = Value::Time(Duration::from_secs(60));

pub(super) const ROW: FaultRow = FaultRow {
    word: "freeze",
    takes: Takes::Time,
    kind: |_| Kind::Process,
    names: Names::Message,
    shows_old: true,
    tried: Tried {
        writes: &[at(4, LONG), at(6, PAST_A_LEASE)],
        ..Tried::NEVER
    },
    effects: |time| Effects {
        request: Some(OnRequest::Freeze(time.time())),
        ..Effects::NONE
    },
    words: |it, time| {
        format!(
            "stop the process of {} (SIGSTOP) at {}; it continues {:?} later",
            it.client,
            it.what,
            time.time()
        )
    },
};
