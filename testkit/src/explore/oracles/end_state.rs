//! `Oracle::EndState`: the end state equals the end state of the run without faults.

use super::facts::Facts;
use super::row::{Looks, OracleRow, Recurring};
use crate::explore::outcomes::{Count, EndState, LeftAfter, Violation, headline};
use crate::explore::specs::BACK;

pub(super) const ROW: OracleRow = OracleRow {
    name: "end state",
    looks: Looks::UntilRight(check),
    recurs: Some(recurs),
};

/// Names of the oracle if a spec was changed, and if the initial spec was restored.
const PATH_INDEPENDENCE: &str = "path independence";
const RECOVERY: &str = "recovery";

fn check(facts: &Facts<'_>, end: &EndState) -> Option<Violation> {
    let reference = facts.reference?;
    let (plan, within) = (&facts.gate.plan, facts.within);
    let differences = match plan.is_sequence() {
        true => reference.outcome.end.compare_decided(end, &reference.mask),
        false => {
            let (expected, mask) = (&reference.outcome.end, &reference.mask);
            facts.gate.compared(match plan.overlaps() {
                true => expected.judge_overlap(end, mask),
                false => expected.judge(end, mask),
            })
        }
    };
    if differences.is_empty() {
        return None;
    }
    let text = differences.join("\n  ");
    if !plan.is_sequence() {
        let expected = (&reference.outcome.end, &reference.outcome.trace[..]);
        let place = match plan.overlaps() {
            true => LeftAfter::Overlap,
            false => LeftAfter::End,
        };
        let headline = headline(expected, end, within, place);
        return Some(Violation::new(ROW.name, format!("{headline}\n  {text}")));
    }
    let (oracle, object) = match plan.changes.last().is_some_and(|it| it == BACK) {
        true => (RECOVERY, "a new object with the initial spec"),
        false => (PATH_INDEPENDENCE, "a new object with the same spec"),
    };
    let what = format!("after {within:?} the end state still differs from the end state of {object}:\n  {text}");
    Some(Violation::new(oracle, what))
}

fn recurs(runs: &Recurring<'_>) -> bool {
    let end = runs.faultless.at_rest();
    let judged = end.judge(&runs.failed.end, &runs.reference.mask);
    // A failed attempt is not repeated if the next input has arrived, so its result stays in the history.
    judged.lines.is_empty() || runs.has_failures && Count::have_results(&judged.counts)
}
