//! `Oracle::CreatesAndDeletes`: no object is created or deleted more often than in the reference.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::facts::Facts;
use super::row::{Looks, OracleRow, Recurring};
use crate::explore::outcomes::{CREATES_AND_DELETES, NEAR, Outcome, Reference, Uids, grouped, history, timed};
use crate::templates::Templates;

pub(super) const ROW: OracleRow = OracleRow {
    name: CREATES_AND_DELETES,
    looks: Looks::AtTheEnd(check),
    recurs: Some(recurs),
};

fn check(facts: &Facts<'_>) -> Option<String> {
    let reference = facts.reference?;
    // An object may be created again because its spec was changed.
    if facts.gate.plan.is_sequence() {
        return None;
    }
    let state = facts.gate.state();
    let all = [&state.created, &state.deleted];
    let is_counted = |key: &str| {
        let counted = &facts.gate.plan.counted;
        !counted.is_empty() && counted.contains(&history(key).replace(" /", " "))
    };
    let more = more_often(all, facts.times(), reference).into_iter();
    let more = more.filter(|((_, key), _)| !is_counted(key));
    let lines = more.map(|((did, key), [now, before])| {
        format!("{key} was {did} {now} times, but {before} times in the reference run")
    });
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| lines.join("\n  "))
}

fn recurs(runs: &Recurring<'_>) -> bool {
    let of = |it: &Outcome| more_often([&it.created, &it.deleted], it.times, runs.reference);
    let faultless = of(runs.faultless);
    let is_matched = |(key, [now, _]): (_, [usize; 2])| faultless.get(&key).is_some_and(|[at_most, _]| now <= *at_most);
    of(runs.failed).into_iter().all(is_matched)
}

/// Returns the objects that were created or deleted more often than in the reference, with both numbers. `from` and
/// `to` are the times of day at the start and the end of the run.
fn more_often(
    [created, deleted]: [&Uids; 2],
    [from, to]: [Timestamp; 2],
    reference: &Reference,
) -> BTreeMap<(&'static str, String), [usize; 2]> {
    let of = |all: &Uids| counted(all, &reference.mask.templates, [from - NEAR, to + NEAR]);
    let known = &reference.outcome;
    let both = [
        ("created", created, &known.created),
        ("deleted", deleted, &known.deleted),
    ];
    let more = both.into_iter().flat_map(|(did, found, known)| {
        let known = of(known);
        of(found).into_iter().filter_map(move |(key, uids)| {
            let (now, before) = (uids.len(), known.get(&key).map_or(0, BTreeSet::len));
            (now > before).then_some(((did, key), [now, before]))
        })
    });
    more.collect()
}

/// Groups objects with generated names. Omits objects with names that contain a time of the run, because a longer run
/// has more such objects.
fn counted(all: &Uids, templates: &Templates, [from, to]: [Timestamp; 2]) -> Uids {
    let has_time = |key: &str| key.rsplit('/').next().and_then(|name| timed(name, from, to)).is_some();
    let without = all.iter().filter(|(key, _)| !has_time(key));
    let without = without.map(|(key, uids)| (key.clone(), uids.clone())).collect();
    grouped(&without, templates)
}
