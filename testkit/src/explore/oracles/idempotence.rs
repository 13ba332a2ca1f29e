//! A restart after all work is done changes nothing.

use std::collections::BTreeSet;

use fake_apiserver::StoredChange;

use super::facts::Facts;
use super::row::{Looks, OracleRow, Restarted};
use crate::explore::outcomes::has_time_in_name;
use crate::explore::plans::given;
use crate::explore::trace::Step;

/// Maximum number of writes that are listed.
const SHOWN: usize = 5;

pub(super) const ROW: OracleRow = OracleRow {
    name: "idempotence",
    looks: Looks::AfterRestart(check),
};

fn check(facts: &Facts<'_>, restarted: &Restarted<'_>) -> Option<String> {
    let done = facts.cluster.work.since(&facts.gate.server, restarted.revision);
    if done.count == 0 || is_next_of_series(facts, restarted, &done.beside) {
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
        "after a restart with all work done, {} changed {changed}: {}",
        given(restarted.client),
        writes.join(", ")
    ))
}

/// Returns `true` if the controller only replaced objects with a time in their names, and the state is the same but for
/// the times: it has taken the next backup and deleted the oldest one.
fn is_next_of_series(facts: &Facts<'_>, restarted: &Restarted<'_>, beside: &BTreeSet<u64>) -> bool {
    let changes = facts.gate.server.changes_after(restarted.revision).into_iter();
    let mut changes = changes.filter(|it| !beside.contains(&it.revision));
    let is_replaced = |it: &StoredChange| {
        let is_change = it.before.is_some() && it.after.is_some();
        !is_change && it.object().is_some_and(has_time_in_name)
    };
    changes.all(|it| is_replaced(&it))
        && facts.reference.is_some_and(|reference| {
            let after = facts.end_state();
            restarted.before.compare(&after, &reference.mask).is_empty()
        })
}
