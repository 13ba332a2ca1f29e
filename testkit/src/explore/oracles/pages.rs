//! `Oracle::Pages`: clients that list with a limit read all pages.

use super::facts::Facts;
use super::row::{Looks, OracleRow};
use crate::explore::plans::Fault;

pub(super) const ROW: OracleRow = OracleRow {
    name: "all pages are read",
    looks: Looks::AfterScenario(check),
    recurs: None,
};

/// Describes a client with unread pages. Only checks runs without faults that could explain them.
fn check(facts: &Facts<'_>) -> Option<String> {
    let mut faults = facts.gate.plan.faults.iter();
    if faults.any(|it| it.action.fault != Fault::SmallPages) {
        return None;
    }
    let state = facts.gate.state();
    let ((client, resource), _) = state.pages.iter().find(|(_, open)| **open > 0)?;
    Some(format!(
        "{client} lists {resource} with a limit, but does not read the remaining pages"
    ))
}
