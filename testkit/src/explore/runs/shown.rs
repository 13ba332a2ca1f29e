//! Repeats runs for the report in order to record bodies and tracing output, which a search does not record.

use super::config::{Config, Role};
use super::run::run;
use super::world::World;
use crate::explore::outcomes::{Finding, Outcome, Recorded, Reference};
use crate::explore::plans::Plan;

/// Adds bodies and tracing output of both runs to a finding, unless a repeated run differs from the original one.
pub(crate) fn show(config: &Config, world: &World, finding: &mut Finding) {
    let other = world.at(finding.plan.start);
    let world = other.as_ref().unwrap_or(world);
    let again = |plan: &Plan, reference: Option<&Reference>, shown: &Outcome| -> Option<Recorded> {
        let outcome = run(config, world, plan, Role::Shown, reference);
        outcome.recorded.filter(|_| outcome.trace == shown.trace)
    };
    let reference = &finding.reference;
    let is_compared = !reference.outcome.trace.is_empty();
    if is_compared {
        finding.recorded = again(&reference.plan, None, &reference.outcome);
    }
    if !finding.outcome.trace.is_empty() {
        // A run that fails before there is a reference is repeated without a comparison.
        let plan = Plan {
            patient_from: finding.outcome.patient_from,
            ..finding.plan.clone()
        };
        let compared = is_compared
            .then(|| again(&plan, Some(reference), &finding.outcome))
            .flatten();
        let recorded = compared.or_else(|| again(&plan, None, &finding.outcome));
        finding.outcome.recorded = recorded;
    }
}
