//! `early`: the test does not wait for the end of the faults. Only tried together with other faults.

use super::effects::{Effects, OnRun};
use super::row::{FaultRow, Kind, Names};
use super::tried::Tried;
use super::value::Takes;

pub(super) const ROW: FaultRow = FaultRow {
    word: "early",
    takes: Takes::Nothing,
    kind: |_| Kind::Overlap,
    names: Names::Fixed,
    shows_old: false,
    tried: Tried::NEVER,
    effects: |_| Effects {
        run: Some(OnRun::ContinueEarly),
        ..Effects::NONE
    },
    words: |_, _| "let the test continue during the fault".to_owned(),
};
