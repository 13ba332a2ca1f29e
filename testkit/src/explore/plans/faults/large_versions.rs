//! `large-versions`: the revisions of the server start at a large number.

use super::effects::{Effects, OnRun};
use super::row::{FaultRow, Kind, Names};
use super::tried::{Tried, Whole};
use super::value::{Takes, Value};

/// A revision that exceeds 32 bits and the integers that a floating-point number represents exactly.
pub(crate) const LARGE: u64 = (1 << 53) + 1;

/// The point of faults of the whole server.
pub(super) const SERVER: &str = "server";

pub(super) const ROW: FaultRow = FaultRow {
    word: "large-versions",
    takes: Takes::Nothing,
    kind: |_| Kind::Variant,
    names: Names::Fixed,
    shows_old: false,
    tried: Tried {
        whole: |_, _| {
            vec![Whole {
                rank: 4,
                at: 0,
                value: Value::Nothing,
                point: SERVER.to_owned(),
            }]
        },
        ..Tried::NEVER
    },
    effects: |_| Effects {
        run: Some(OnRun::LargeVersions),
        ..Effects::NONE
    },
    words: |_, _| format!("the server's revisions start at {LARGE}"),
};
