//! `pause`: a client is disconnected and keeps running, as in a partition.

use std::time::Duration;

use super::effects::{Effects, OnRequest};
use super::row::{FaultRow, Kind, Names};
use super::tried::{LONG, Tried, at};
use super::value::{Takes, Value};

/// Duration of a partition that outlasts a Lease of fifteen seconds.
const PARTITION: Value = Value::Time(Duration::from_secs(40));

pub(super) const ROW: FaultRow = FaultRow {
    word: "pause",
    takes: Takes::Time,
    kind: |_| Kind::Pause,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        writes: &[at(6, PARTITION), at(7, LONG)],
        ..Tried::NEVER
    },
    effects: |time| Effects {
        request: Some(OnRequest::CutOff(time.time())),
        ..Effects::NONE
    },
    words: |it, time| {
        format!(
            "disconnect {} for {:?}, starting at {}",
            it.client,
            time.time(),
            it.what
        )
    },
};
