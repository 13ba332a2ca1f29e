//! `Oracle::EndState`: the end state equals the end state of the run without faults.

use super::facts::Facts;
use super::row::{Looks, OracleRow, Recurring};
use crate::explore::outcomes::{EndState, LeftAfter, Violation, headline};
use crate::explore::specs::BACK;

pub(super) const ROW: OracleRow = OracleRow {
    name: "end state",
    looks: Looks::UntilRight(check),
    recurs: Some(recurs),
};

/// Resources in which workers keep the history of a spec, as in the lines of differences.
const HISTORY: [&str; 2] = [REVISIONS, REPLICA_SETS];
const REVISIONS: &str = "controllerrevisions.apps ";
const REPLICA_SETS: &str = "replicasets.apps ";

/// Annotation with the number of a ReplicaSet in the history.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// Names of the oracle if a spec was changed, and if the initial spec was restored.
const PATH_INDEPENDENCE: &str = "path independence";
const RECOVERY: &str = "recovery";

fn check(facts: &Facts<'_>, end: &EndState) -> Option<Violation> {
    let reference = facts.reference?;
    let (plan, within) = (&facts.gate.plan, facts.within);
    let differences = match plan.is_sequence() {
        true => reference.outcome.end.compare_decided(end, &reference.mask),
        false => {
            let judged = reference.outcome.end.judge(end, &reference.mask);
            let compared = facts.gate.compared(judged);
            if plan.overlaps() {
                without_history(compared)
            } else {
                compared
            }
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

/// Removes the differences in the history that workers keep of a spec, and in fields with the names of these objects.
/// If a controller has not observed a change by users before they made another one, the history is shorter.
/// Controllers may also write ReplicaSets themselves, so other differences in ReplicaSets remain.
fn without_history(mut differences: Vec<String>) -> Vec<String> {
    let names = HISTORY.map(|resource| format!("expected \"name of {resource}"));
    let is_history = |it: &str| {
        it.starts_with(REVISIONS)
            || it.starts_with(REPLICA_SETS) && (it.ends_with(": missing") || it.contains(REVISION))
            || names.iter().any(|name| it.contains(name))
    };
    differences.retain(|it| !is_history(it));
    differences
}

fn recurs(runs: &Recurring<'_>) -> bool {
    let end = runs.faultless.at_rest();
    end.judge(&runs.failed.end, &runs.reference.mask).lines.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_history_of_a_spec_is_removed() {
        let lines = [
            "controllerrevisions.apps shop/a-*: missing",
            "pods shop/a-0 metadata.labels.hash: expected \"name of controllerrevisions.apps shop/a-*, number 2\", found 1",
            "replicasets.apps shop/a-*: missing",
            "replicasets.apps shop/a-* spec.replicas: expected 2, found 1",
            "statefulsets.apps shop/a: missing",
        ];
        let left = without_history(lines.map(str::to_owned).to_vec());
        assert_eq!(left, lines[3..]);
    }
}
