//! `Oracle::GeneratedValues`: the copies of a generated value are equal at the end.

use super::facts::Facts;
use super::row::{Looks, OracleRow, Recurring};
use crate::explore::outcomes::{EndState, Violation};

pub(super) const ROW: OracleRow = OracleRow {
    name: "generated values",
    looks: Looks::UntilRight(check),
    recurs: Some(recurs),
};

fn check(facts: &Facts<'_>, end: &EndState) -> Option<Violation> {
    let what = facts.reference?.generated.disagreement(end)?;
    Some(Violation::new(ROW.name, what))
}

fn recurs(runs: &Recurring<'_>) -> bool {
    let disagreeing = |end| runs.reference.generated.disagreeing(end);
    disagreeing(&runs.failed.end).is_subset(&disagreeing(runs.faultless.at_rest()))
}
