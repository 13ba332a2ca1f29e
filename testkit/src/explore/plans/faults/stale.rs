//! `stale`: a read is served by a lagging replica.

use super::effects::{Effects, OnRequest};
use super::row::{FaultRow, Kind, Names};
use super::tried::{Tried, Try, at};
use super::value::{Takes, Value};

/// Returns tries for three states: those after 50, 75 and 25 percent of the revisions since the start of the run.
const fn tries(rank: u8) -> [Try; 3] {
    [
        at(rank, Value::Number(50)),
        at(rank, Value::Number(75)),
        at(rank, Value::Number(25)),
    ]
}

pub(super) const ROW: FaultRow = FaultRow {
    word: "stale",
    takes: Takes::Number(0..=u8::MAX as i64),
    kind: |_| Kind::Watch,
    names: Names::Message,
    shows_old: true,
    tried: Tried {
        gets: &{
            let [one, two, three] = tries(4);
            [
                one.of(|it| it.request.may_be_stale),
                two.of(|it| it.request.may_be_stale),
                three.of(|it| it.request.may_be_stale),
            ]
        },
        lists: &{
            // A list after another fault is usually the first list after a restart, which may return an earlier state.
            let ([one, two, three], [four, five, six]) = (tries(0), tries(4));
            [
                one.of(|it| it.request.may_be_stale && it.is_second),
                two.of(|it| it.request.may_be_stale && it.is_second),
                three.of(|it| it.request.may_be_stale && it.is_second),
                four.of(|it| it.request.may_be_stale && !it.is_second),
                five.of(|it| it.request.may_be_stale && !it.is_second),
                six.of(|it| it.request.may_be_stale && !it.is_second),
            ]
        },
        ..Tried::NEVER
    },
    effects: |percent| Effects {
        request: Some(OnRequest::ReadOld(percent.number())),
        ..Effects::NONE
    },
    words: |it, _| {
        let after = if it.verb == "get" {
            ""
        } else {
            ", which catches up 12s later"
        };
        format!("answer {} of {} from a lagging replica{after}", it.what, it.client)
    },
};
