//! `rewind`: a list after a restart returns the objects as they were before the last creations, deletions and changes
//! of specs.

use super::effects::{Effects, OnRequest};
use super::row::{FaultRow, Kind, Names};
use super::tried::{Tried, at};
use super::value::{Takes, Value};

pub(super) const ROW: FaultRow = FaultRow {
    word: "rewind",
    takes: Takes::Number(1..=u8::MAX as i64),
    kind: |_| Kind::Process,
    names: Names::Message,
    shows_old: true,
    tried: Tried {
        lists: &[
            at(0, Value::Number(1)).of(|it| it.is_second && it.request.may_be_stale && it.changes >= 1),
            at(0, Value::Number(2)).of(|it| it.is_second && it.request.may_be_stale && it.changes >= 2),
            at(0, Value::Number(3)).of(|it| it.is_second && it.request.may_be_stale && it.changes >= 3),
            at(2, Value::Number(4)).of(|it| it.is_second && it.request.may_be_stale && it.changes >= 4),
        ],
        ..Tried::NEVER
    },
    effects: |changes| Effects {
        request: Some(OnRequest::Rewind(changes.number())),
        ..Effects::NONE
    },
    words: |it, changes| {
        let changes: u8 = changes.number();
        let changes = match changes {
            1 => "change".to_owned(),
            more => format!("{more} changes"),
        };
        format!(
            "answer {} of {} from a replica that lags by the last {changes} of specs, creations and deletions",
            it.what, it.client
        )
    },
};
