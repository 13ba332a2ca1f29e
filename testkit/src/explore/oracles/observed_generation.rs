//! `Oracle::ObservedGeneration`: `status.observedGeneration` is the newest generation at the end.

use super::facts::Facts;
use super::row::{Looks, OracleRow};
use crate::explore::outcomes::{EndState, Violation};

pub(super) const ROW: OracleRow = OracleRow {
    name: "observed generation",
    looks: Looks::UntilRight(check),
    recurs: None,
};

fn check(facts: &Facts<'_>, end: &EndState) -> Option<Violation> {
    let (spec, reference) = (facts.spec?, facts.reference?);
    // A controller that cannot apply the spec may still report an older generation.
    if spec.unobserved(&reference.outcome.end).is_some() {
        return None;
    }
    spec.unobserved(end).map(|what| Violation::new(ROW.name, what))
}
