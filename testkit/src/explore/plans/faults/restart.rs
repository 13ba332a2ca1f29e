//! `restart`: a controller is restarted after all work has been done.

use super::effects::{Effects, OnRun};
use super::row::{FaultRow, Kind, Names};
use super::tried::{Tried, Whole};
use super::value::{Takes, Value};

pub(super) const ROW: FaultRow = FaultRow {
    word: "restart",
    takes: Takes::Nothing,
    kind: |_| Kind::Crash,
    names: Names::Controller,
    shows_old: false,
    tried: Tried {
        whole: |trace, controllers| {
            let restarts = controllers.iter().map(|client| Whole {
                rank: 0,
                at: trace.len(),
                value: Value::Nothing,
                point: client.to_string(),
            });
            restarts.collect()
        },
        ..Tried::NEVER
    },
    effects: |_| Effects {
        run: Some(OnRun::RestartAtEnd),
        ..Effects::NONE
    },
    words: |it, _| format!("restart {} when all work is done", it.client),
};
