//! `skew`: the clock of a client that writes Leases is wrong for the whole run.

use std::collections::BTreeSet;
use std::time::Duration;

use super::effects::{Effects, OnRun};
use super::row::{FaultRow, Kind, Names};
use super::tried::{Tried, Whole};
use super::value::{Takes, Value};
use crate::explore::trace::{LEASES, Step};

/// Deviation of the clock in milliseconds: twice the duration of a Lease.
const SKEW: i64 = 30_000;

pub(super) const ROW: FaultRow = FaultRow {
    word: "skew",
    takes: Takes::Number(i64::MIN..=i64::MAX),
    kind: |_| Kind::Clock,
    names: Names::Client,
    shows_old: false,
    tried: Tried {
        whole: |trace, _| electors(trace),
        ..Tried::NEVER
    },
    effects: |ahead| Effects {
        run: Some(OnRun::Skew(ahead.number())),
        ..Effects::NONE
    },
    words: |it, ahead| {
        let ahead: i64 = ahead.number();
        let direction = if ahead < 0 { "behind" } else { "ahead" };
        let time = Duration::from_millis(ahead.unsigned_abs());
        format!("the clock of {} is {time:?} {direction}", it.client)
    },
};

fn electors(trace: &[Step]) -> Vec<Whole> {
    let requests = trace.iter().filter_map(|it| Some((&it.client, it.request()?)));
    let writes = requests.filter(|(_, it)| it.is_write() && it.resource.starts_with(LEASES));
    let electors: BTreeSet<_> = writes.map(|(client, _)| client).collect();
    let skewed = electors.into_iter().flat_map(|client| {
        [SKEW, -SKEW].map(|ahead| Whole {
            rank: 4,
            at: 0,
            value: Value::Number(ahead),
            point: client.to_string(),
        })
    });
    skewed.collect()
}
