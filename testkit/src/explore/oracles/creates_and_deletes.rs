//! No object is created or deleted more often than in the reference.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::facts::Facts;
use super::row::{Looks, OracleRow};
use crate::explore::outcomes::{NEAR, timed};
use crate::templates::Templates;

pub(super) const ROW: OracleRow = OracleRow {
    name: "creates and deletes",
    looks: Looks::AtTheEnd(check),
};

/// The uids of created or deleted objects, by the names of the objects.
type Uids = BTreeMap<String, BTreeSet<String>>;

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
    let mut counted = Uids::new();
    for (key, uids) in all {
        let has_time = key.rsplit('/').next().and_then(|name| timed(name, from, to)).is_some();
        if !has_time {
            let key = templates.key(key).unwrap_or_else(|| key.clone());
            counted.entry(key).or_default().extend(uids.iter().cloned());
        }
    }
    counted
}
