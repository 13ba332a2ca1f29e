//! No object is created or deleted more often than in the reference.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Facts;
use super::row::{Looks, OracleRow};

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
    let state = facts.gate.state();
    more("created", &state.created, &reference.outcome.created)
        .or_else(|| more("deleted", &state.deleted, &reference.outcome.deleted))
}
