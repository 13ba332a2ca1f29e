//! A restart after all work is done changes nothing.

use super::facts::Facts;
use super::row::{Looks, OracleRow, Restarted};
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
    if done.count == 0 {
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
