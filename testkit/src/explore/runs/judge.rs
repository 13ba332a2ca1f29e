//! Runs a plan and compares the run with its reference.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fake_apiserver::Verb;

use super::baseline;
use super::config::{Config, Role};
use super::run::run;
use super::world::World;
use crate::explore::outcomes::{EndState, Generated, Outcome, Reference};
use crate::explore::plans::Plan;
use crate::explore::specs::Spec;
use crate::explore::trace::{Outcome as Answer, What};
use crate::lock::lock;

/// Fields that count changes of the spec, and therefore differ between an object that was changed and a new object.
const COUNTERS: [&str; 2] = ["status.observedGeneration", "status.conditions.*.observedGeneration"];

/// Runs a plan, compares the run with its reference, and returns both. The reference is `base` unless the plan changes
/// the spec.
pub(crate) fn judged(
    config: &Config,
    world: &World,
    (plan, role): (&Plan, Role),
    base: &Arc<Reference>,
) -> (Outcome, Arc<Reference>) {
    let spec = config.spec.as_ref().filter(|_| !plan.changes.is_empty());
    let Some(spec) = spec else {
        return (asserted(config, world, (plan, role), base), Arc::clone(base));
    };
    let mut took = Duration::ZERO;
    let sequence = match sequence(spec, config, world, &plan.changes, &mut took) {
        Ok(sequence) => sequence,
        Err(failed) => return (*failed, Arc::clone(base)),
    };
    let reference = match plan.is_sequence() {
        true => match fresh(spec, config, world, &sequence.outcome.end, &mut took) {
            Some(Ok(fresh))
                if !is_unhealthy(&fresh) && !keeps_the_last(spec, config, world, plan, [&sequence, &fresh, base]) =>
            {
                fresh
            }
            // If the last spec is unusable, the state may remain as it was before.
            Some(_) | None => sequence,
        },
        false => sequence,
    };
    let mut outcome = asserted(config, world, (plan, role), &reference);
    outcome.took += took;
    (outcome, reference)
}

/// Runs a plan. If an assertion of the scenario fails because the test continues during a fault, repeats the run with a
/// longer wait before the assertion: until all faults have ended and the state equals the reference's.
fn asserted(config: &Config, world: &World, (plan, role): (&Plan, Role), reference: &Reference) -> Outcome {
    let mut outcome = run(config, world, plan, role, Some(reference));
    // If the assertion precedes the first wait, waiting longer cannot affect it.
    let is_repeated = !config.timing.is_real && outcome.violations.is_empty();
    let Some(patient_from) = outcome.void_at.filter(|it| *it > 0 && is_repeated) else {
        return outcome;
    };
    let patient = Plan {
        patient_from: Some(patient_from),
        ..plan.clone()
    };
    let again = run(config, world, &patient, role, Some(reference));
    let took = outcome.took + again.took;
    match again.violations.is_empty() {
        true => outcome.is_unjudged &= again.void_at.is_some(),
        false => outcome = again,
    }
    outcome.took = took;
    outcome
}

/// Returns `true` if a write of a controller for a new object never succeeds, because the spec matches the schema but
/// is unusable. Conflicts and missing objects do not count as failures.
fn is_unhealthy(fresh: &Reference) -> bool {
    let mut writes: BTreeMap<(&str, Verb, &str, String), bool> = BTreeMap::new();
    for step in &fresh.outcome.trace {
        if let What::Request(request) = &step.what
            && request.is_write()
            && let Answer::Answered(code) = request.outcome
        {
            let write = (&*step.client, request.verb, &*request.resource, request.named());
            *writes.entry(write).or_default() |= code < 400 || matches!(code, 404 | 409);
        }
    }
    writes.values().any(|is_done| !is_done)
}

/// Returns `true` if a controller rejects the last spec of a sequence: it writes no other objects for a new object with
/// this spec, although it does so for the first spec, and after a change to this spec it keeps the objects that it had
/// created. `changed`, `fresh` and `base` are the references of the sequence, of the new object and of the first spec.
fn keeps_the_last(
    spec: &Spec,
    config: &Config,
    world: &World,
    plan: &Plan,
    [changed, fresh, base]: [&Arc<Reference>; 3],
) -> bool {
    if makes_others(spec, fresh) || !makes_others(spec, base) {
        return false;
    }
    let mut took = Duration::ZERO;
    let before = match plan.changes.split_last() {
        Some((_, before)) if !before.is_empty() => sequence(spec, config, world, before, &mut took).ok(),
        _ => Some(Arc::clone(base)),
    };
    before.is_some_and(|before| {
        let (expected, found) = (&before.outcome.end, &changed.outcome.end);
        expected.has_same_others(found, &before.mask, &spec.key)
    })
}

/// Returns `true` if controllers have written objects other than the explored one.
fn makes_others(spec: &Spec, reference: &Reference) -> bool {
    const BY_PRODUCTS: [&str; 3] = ["events", "events.events.k8s.io", "leases.coordination.k8s.io"];
    reference.outcome.trace.iter().any(|step| match &step.what {
        What::Request(request) => {
            request.is_write()
                && matches!(request.outcome, Answer::Answered(200..=299))
                && !BY_PRODUCTS.contains(&request.base())
                && format!("{} {}", request.base(), request.named()) != spec.key
        }
        What::Event { .. } | What::Call { .. } | What::Note(_) => false,
    })
}

/// Executes the reference run of a sequence of changes, without faults. The error is the failed run.
pub(crate) fn sequence(
    spec: &Spec,
    config: &Config,
    world: &World,
    changes: &[String],
    took: &mut Duration,
) -> Result<Arc<Reference>, Box<Outcome>> {
    if let Some(known) = lock(&spec.sequences).get(changes) {
        return Ok(Arc::clone(known));
    }
    let plan = Plan {
        changes: changes.to_vec(),
        ..Plan::default()
    };
    let made = Arc::new(made(config, world, &plan, took)?);
    lock(&spec.sequences).insert(changes.to_vec(), Arc::clone(&made));
    Ok(made)
}

/// Executes the reference run of an object that is created with the last spec of a sequence; `None` if the object does
/// not exist at the end of the sequence. The error is the failed run.
fn fresh(
    spec: &Spec,
    config: &Config,
    world: &World,
    end: &EndState,
    took: &mut Duration,
) -> Option<Result<Arc<Reference>, Box<Outcome>>> {
    let mut object = spec.object.clone();
    object["spec"] = spec.object_in(end)?["spec"].clone();
    let text = object.to_string();
    if let Some(known) = lock(&spec.fresh).get(&text) {
        return Some(Ok(Arc::clone(known)));
    }
    let plan = Plan {
        fresh: Some(text.clone()),
        ..Plan::default()
    };
    let made = match made(config, world, &plan, took) {
        Ok(made) => Arc::new(made),
        Err(failed) => return Some(Err(failed)),
    };
    lock(&spec.fresh).insert(text, Arc::clone(&made));
    Some(Ok(made))
}

fn made(config: &Config, world: &World, plan: &Plan, took: &mut Duration) -> Result<Reference, Box<Outcome>> {
    let mut first = run(config, world, plan, Role::Usual, None);
    if !first.violations.is_empty() {
        *took += first.took;
        return Err(Box::new(first));
    }
    let mut other = run(config, world, plan, Role::Other, None);
    other.end = baseline::end_of(&other, &first);
    let ignored: Vec<String> = config
        .ignored
        .iter()
        .cloned()
        .chain(COUNTERS.map(str::to_owned))
        .collect();
    let mut mask = first.mask(&other, &ignored, config.began);
    baseline::rest(config, world, plan, &ignored, (&mut first, &mut mask));
    *took += first.took + other.took;
    Ok(Reference {
        plan: plan.clone(),
        generated: Generated::of(&first.end, &other.end, &mask, &ignored),
        mask,
        outcome: first,
        milestones: Arc::default(),
    })
}
