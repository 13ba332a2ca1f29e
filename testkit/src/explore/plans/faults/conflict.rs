//! `conflict`: another client writes the object first, and changes only its version.

use super::effects::{Effects, OnRequest};
use super::row::{FaultRow, Kind, Names};
use super::tried::{Tried, at};
use super::value::{Takes, Value};

pub(super) const ROW: FaultRow = FaultRow {
    word: "conflict",
    takes: Takes::Nothing,
    kind: |_| Kind::Error,
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        writes: &[at(1, Value::Nothing).of(|it| it.request.may_conflict)],
        ..Tried::NEVER
    },
    effects: |_| Effects {
        request: Some(OnRequest::Overtake),
        ..Effects::NONE
    },
    words: |it, _| {
        format!(
            "let another client write the object before {} of {}, so that the request fails with 409 if it has a \
             resourceVersion",
            it.what, it.client
        )
    },
};
