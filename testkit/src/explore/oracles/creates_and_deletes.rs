//! `Oracle::CreatesAndDeletes`: no object is created or deleted more often than in the reference.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::facts::Facts;
use super::row::{Looks, OracleRow};
use crate::explore::outcomes::{NEAR, Uids, grouped, timed};
use crate::templates::Templates;

pub(super) const ROW: OracleRow = OracleRow {
    name: "creates and deletes",
    looks: Looks::AtTheEnd(check),
};

fn check(facts: &Facts<'_>) -> Option<String> {
    let reference = facts.reference?;
    // A changed object may be created again.
    if facts.gate.plan.is_sequence() {
        return None;
    }
    let more = |did: &str, found: &Uids, known: &Uids| {
        found.iter().find_map(|(key, uids)| {
            let (now, before) = (uids.len(), known.get(key).map_or(0, BTreeSet::len));
            (now > before).then(|| format!("{key} was {did} {now} times, and {before} times in the reference run"))
        })
    };
    let now = facts.gate.server.now();
    let elapsed = SignedDuration::try_from(facts.gate.started.elapsed()).unwrap_or_default();
    let of = |all: &Uids| counted(all, &reference.mask.templates, [now - elapsed - NEAR, now + NEAR]);
    let state = facts.gate.state();
    let [created, deleted] = [&reference.outcome.created, &reference.outcome.deleted].map(of);
    more("created", &of(&state.created), &created).or_else(|| more("deleted", &of(&state.deleted), &deleted))
}

/// Groups objects with generated names. Leaves out objects with a time of the run in their names: a run that takes
/// longer has more of them.
fn counted(all: &Uids, templates: &Templates, [from, to]: [Timestamp; 2]) -> Uids {
    let has_time = |key: &str| key.rsplit('/').next().and_then(|name| timed(name, from, to)).is_some();
    let without = all.iter().filter(|(key, _)| !has_time(key));
    let without = without.map(|(key, uids)| (key.clone(), uids.clone())).collect();
    grouped(&without, templates)
}
