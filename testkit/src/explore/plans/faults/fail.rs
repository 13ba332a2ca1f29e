//! `fail`: the server responds with an error and does not execute the request.

use super::effects::{Effects, OnCall, OnRequest};
use super::row::{FaultRow, Kind, Names};
use super::tried::{Tried, at};
use super::value::{Takes, Value};

/// Status of a server that does not support streaming lists.
const UNPROCESSABLE: Value = Value::Number(422);

pub(super) const ROW: FaultRow = FaultRow {
    word: "fail",
    takes: Takes::Number(0..=u16::MAX as i64),
    kind: |code| match code == UNPROCESSABLE {
        true => Kind::Variant,
        false => Kind::Error,
    },
    names: Names::Message,
    shows_old: false,
    tried: Tried {
        writes: &[
            at(2, Value::Number(500)),
            at(5, Value::Number(429)),
            // A quota may be exhausted for a while.
            at(5, Value::Number(403)).of(|it| it.request.counts_for_quotas()),
        ],
        gets: &[at(2, Value::Number(500))],
        discovery: &[at(2, Value::Number(503))],
        lists: &[
            at(3, Value::Number(500)),
            at(3, Value::Number(410)).of(|it| it.request.may_expire),
        ],
        watches: &[
            at(3, Value::Number(410)),
            at(4, Value::Number(500)),
            at(4, UNPROCESSABLE).of(|it| it.request.streams_list),
        ],
        calls: &[at(2, Value::Number(503))],
        ..Tried::NEVER
    },
    effects: |code| Effects {
        request: Some(OnRequest::Refuse(code.number())),
        call: Some(OnCall::Fail),
        ..Effects::NONE
    },
    words: |it, code| {
        let code: u16 = code.number();
        format!(
            "answer {} of {} with {code} without executing the request",
            it.what, it.client
        )
    },
};
