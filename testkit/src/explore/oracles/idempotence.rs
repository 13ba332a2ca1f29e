//! `Oracle::Idempotence`: a restart after all work has been done changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use fake_apiserver::StoredChange;
use jiff::Timestamp;
use serde_json::Value;

use super::facts::Facts;
use super::row::{Looks, OracleRow, Restarted};
use crate::explore::outcomes::{has_time_in_name, is_time, leaves, plain_key};
use crate::explore::plans::given;
use crate::explore::trace::{Step, What};

/// Maximum number of writes that a violation lists.
const SHOWN: usize = 5;

/// Minimum number of earlier changes of the same fields for which a change counts as a heartbeat.
const HEARTBEATS: usize = 3;

/// Metadata fields that the server sets on each write.
const SERVER: [&str; 3] = [
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
];

pub(super) const ROW: OracleRow = OracleRow {
    name: "idempotence",
    looks: Looks::AfterRestart(check),
    recurs: None,
};

fn check(facts: &Facts<'_>, restarted: &Restarted<'_>) -> Option<String> {
    let done = facts.cluster.work.since(&facts.gate.server, restarted.revision);
    if done.count == 0 || has_only_series(facts, restarted, &done.beside) {
        return None;
    }
    let writes: Vec<String> = {
        let state = facts.gate.state();
        let steps = state.trace[restarted.steps..].iter();
        steps
            .filter(|it| it.is_write())
            .take(SHOWN)
            .map(Step::subject)
            .collect()
    };
    let changed = facts.end_state().written_after(restarted.revision).join(", ");
    Some(format!(
        "{} was restarted when all work was done, and changed {changed}: {}{}",
        given(restarted.client),
        writes.join(", "),
        overwritten(facts, restarted).unwrap_or_default()
    ))
}

/// Describes a field that the restarted controller has restored after a different client had overwritten it.
fn overwritten(facts: &Facts<'_>, restarted: &Restarted<'_>) -> Option<String> {
    let changes = facts.gate.server.changes_after(facts.gate.base);
    let (earlier, later): (Vec<_>, Vec<_>) = changes.iter().partition(|it| it.revision <= restarted.revision);
    let state = facts.gate.state();
    let writer = |revision: u64| {
        writer(&state.trace, revision)
            .filter(|it| *it != restarted.client)
            .map(given)
    };
    later.into_iter().find_map(|change| {
        let ([before, after], object) = (contents(change)?, change.object()?);
        let mut restored = after.iter().filter(|(path, value)| before.get(*path) != Some(value));
        restored.find_map(|(path, value)| {
            let mut of_object = earlier.iter().rev();
            let client = of_object.find_map(|it| {
                let [before, after] =
                    contents(it).filter(|_| it.object().is_some_and(|it| it.uid() == object.uid()))?;
                let is_lost = before.get(path) == Some(value) && after.get(path) != Some(value);
                writer(it.revision).filter(|_| is_lost)
            })?;
            Some(format!("; it restores {path}, which {client} had overwritten"))
        })
    })
}

/// Returns the client that wrote a revision; `None` if the test or one of the server's workers wrote it.
fn writer(trace: &[Step], revision: u64) -> Option<&str> {
    let is_writer = |step: &&Step| matches!(&step.what, What::Request(it) if it.wrote == Some(revision));
    trace.iter().find(is_writer).map(|it| &*it.client)
}

/// Returns the fields of an object before and after a change, except for fields that the server sets; `None` if the
/// change created or deleted the object.
fn contents(change: &StoredChange) -> Option<[BTreeMap<String, Value>; 2]> {
    let (before, after) = (change.before.as_ref()?, change.after.as_ref()?);
    let is_left_out = |path: &str| SERVER.contains(&path);
    Some([before, after].map(|it| leaves(it.value(), &is_left_out)))
}

/// Returns `true` if all changes after the restart continue a series. A controller may send its next heartbeat. It may
/// also replace objects with a time in their names, for example take the next backup and delete the oldest one, or make
/// changes that belong to an object that the run without faults creates as well when time passes; in these cases, the
/// state must be equal to the state before the restart.
fn has_only_series(facts: &Facts<'_>, restarted: &Restarted<'_>, beside: &BTreeSet<u64>) -> bool {
    let changes = facts.gate.server.changes_after(facts.gate.base);
    let (earlier, later): (Vec<_>, Vec<_>) = changes.iter().partition(|it| it.revision <= restarted.revision);
    let mut later = later.into_iter().filter(|it| !beside.contains(&it.revision));
    let is_replaced = |it: &StoredChange| {
        let is_change = it.before.is_some() && it.after.is_some();
        !is_change && it.object().is_some_and(has_time_in_name)
    };
    let is_upcoming = |it: &StoredChange| {
        let created = it.after.as_ref().filter(|_| it.before.is_none());
        created.is_some_and(|it| {
            facts
                .reference
                .is_some_and(|known| known.mask.upcoming.contains_key(&plain_key(it)))
        })
    };
    let mut has_replaced = later.clone().any(is_upcoming);
    let is_series = has_replaced
        || later.all(|it| {
            let is_replaced = is_replaced(it);
            has_replaced |= is_replaced;
            is_replaced || is_heartbeat(facts, it, &earlier)
        });
    is_series
        && (!has_replaced
            || facts.reference.is_some_and(|reference| {
                let after = facts.end_state();
                restarted.before.compare(&after, &reference.mask).is_empty()
            }))
}

/// Returns `true` if a change only sets times that earlier changes of the same client to the same object have already
/// set in the same way, at least `HEARTBEATS` times. A time that a controller writes only once, such as a start time,
/// is not a heartbeat, even if another controller sets the same field.
fn is_heartbeat(facts: &Facts<'_>, change: &StoredChange, earlier: &[&StoredChange]) -> bool {
    let Some(times) = advanced_times(change) else {
        return false;
    };
    let state = facts.gate.state();
    let writer = |it: &StoredChange| writer(&state.trace, it.revision);
    let uid = change.object().map(|it| it.uid());
    let same = earlier.iter().filter(|it| it.object().map(|it| it.uid()) == uid);
    let series = same.filter(|it| advanced_times(it).as_ref() == Some(&times) && writer(it) == writer(change));
    series.count() >= HEARTBEATS
}

/// Returns the paths of the fields that a change sets to a later time; `None` if it makes other changes.
fn advanced_times(change: &StoredChange) -> Option<BTreeSet<String>> {
    let [before, after] = contents(change)?;
    let time = |value: Option<&Value>| value?.as_str().filter(|it| is_time(it))?.parse::<Timestamp>().ok();
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed = paths.into_iter().filter(|path| before.get(*path) != after.get(*path));
    let advanced = changed.map(|path| {
        let [before, after] = [time(before.get(path))?, time(after.get(path))?];
        (before < after).then(|| path.clone())
    });
    advanced
        .collect::<Option<BTreeSet<String>>>()
        .filter(|it| !it.is_empty())
}
