//! `Oracle::GeneratedValues`: the copies of a generated value are equal at the end.

use super::facts::Facts;
use super::row::{Looks, OracleRow};
use crate::explore::outcomes::{EndState, Violation};

pub(super) const ROW: OracleRow = OracleRow {
    name: "generated values",
    looks: Looks::UntilRight(check),
};

fn check(facts: &Facts<'_>, end: &EndState) -> Option<Violation> {
    let what = facts.reference?.generated.disagreement(end)?;
    Some(Violation::new(ROW.name, what))
}
