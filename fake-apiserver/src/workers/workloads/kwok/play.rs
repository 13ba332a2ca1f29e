//! Chooses the next Stage of an object, and plans the writes of that Stage.

use jiff::Timestamp;

use super::functions::Facts;
use super::stage::{Stage, Step, below, chance};
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::api::yaml;
use crate::workers::workloads::plan::{Note, Plan, Regarding, Write};
use crate::workers::workloads::resource::{Resource, Target};
use crate::workers::workloads::sees::Sees;

/// The source component of Events about Stages.
const COMPONENT: &str = "kwok";

/// The Stage that an object waits for.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// The version of the object for which the Stage was chosen.
    version: String,
    stage: String,
    due: Timestamp,
}

/// Addresses that templates can use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) node_name: String,
    pub(crate) node: String,
    pub(crate) pod: String,
}

/// Plans the next Stage of an object. The Stage begins when its delay has passed since the object changed.
pub(crate) fn sync(
    resource: Resource,
    object: &Object,
    stages: &[Stage],
    addresses: Addresses,
    pending: &mut Option<Pending>,
    sees: &Sees<'_>,
) -> Plan {
    let mut plan = Plan::default();
    let value = Value::Object(object.0.clone());
    let Some(stage) = choose(resource, object, &value, stages) else {
        *pending = None;
        return plan;
    };
    let version = object.meta_str("resourceVersion");
    let known = pending
        .take()
        .filter(|it| it.version == version && it.stage == stage.name);
    let known = known.unwrap_or_else(|| Pending {
        version: version.to_owned(),
        stage: stage.name.clone(),
        due: sees
            .now
            .saturating_add(stage.delay(object, &value, sees.now))
            .unwrap_or(Timestamp::MAX),
    });
    if known.due > sees.now {
        plan.look_again(known.due);
        *pending = Some(known);
        return plan;
    }
    let facts = Facts {
        now: sees.now.to_string(),
        node_name: addresses.node_name,
        node_address: addresses.node,
        pod_address: addresses.pod,
        version: sees.version.release().to_owned(),
    };
    for step in &stage.steps {
        if let Err(why) = execute(step, resource, object, &value, &facts, &mut plan) {
            let message = format!("{}: {why}", stage.name);
            note(resource, object, true, "StageFailed", message, &mut plan);
            break;
        }
    }
    plan
}

/// Chooses a Stage by weight among the Stages that select the object.
fn choose<'a>(resource: Resource, object: &Object, value: &Value, stages: &'a [Stage]) -> Option<&'a Stage> {
    let matching = stages.iter().filter(|it| it.resource == resource && it.matches(value));
    let matching: Vec<&Stage> = matching.collect();
    if let [only] = matching.as_slice() {
        return Some(only);
    }
    let weights: Vec<Option<i64>> = matching.iter().map(|it| it.weight(value)).collect();
    let weighed = |at: usize| weights[at];
    let total: u128 = weights.iter().flatten().filter_map(|it| u128::try_from(*it).ok()).sum();
    let chance = chance(object, "stage");
    if total > 0 {
        let mut rest = u128::from(chance) % total;
        for (at, stage) in matching.iter().enumerate() {
            let weight = weighed(at).and_then(|it| u128::try_from(it).ok()).unwrap_or(0);
            if rest < weight {
                return Some(stage);
            }
            rest -= weight;
        }
    }
    // Without weights all Stages are equally likely. If some weights are numbers, Stages without such a weight are
    // excluded.
    let any_weighed = weights.iter().any(Option::is_some);
    let equal: Vec<&Stage> = matching
        .into_iter()
        .enumerate()
        .filter(|(at, _)| !any_weighed || weighed(*at).is_some())
        .map(|(_, stage)| stage)
        .collect();
    let count = u64::try_from(equal.len()).unwrap_or(u64::MAX);
    let at = chance.checked_rem(count)?;
    equal.get(usize::try_from(at).ok()?).copied()
}

fn execute(
    step: &Step,
    resource: Resource,
    object: &Object,
    value: &Value,
    facts: &Facts,
    plan: &mut Plan,
) -> Result<(), String> {
    match step {
        Step::Event {
            is_warning,
            reason,
            message,
        } => note(resource, object, *is_warning, reason, message.clone(), plan),
        Step::Finalizers { add, remove, empties } => {
            let mut left: Vec<String> = object.finalizers().map(str::to_owned).collect();
            left.retain(|it| !empties && !remove.contains(it));
            left.extend(
                add.iter()
                    .filter(|it| !object.finalizers().any(|known| known == *it))
                    .cloned(),
            );
            let left = if left.is_empty() { Value::Null } else { json!(left) };
            plan.merge(resource, object, json!({"metadata": {"finalizers": left}}));
        }
        Step::Delete => plan.writes.push(Write::Delete {
            at: Target::of(resource, object),
            grace: Some(0),
            propagation: None,
            told: None,
        }),
        Step::Patch {
            subresource,
            root,
            template,
            kind,
        } => {
            let text = template.render(value, facts)?;
            let patch = yaml::parse(text.as_bytes())?.value;
            plan.writes.push(Write::Patch {
                at: Target::of(resource, object),
                subresource: subresource.clone(),
                kind: *kind,
                patch: below(root, *kind, patch),
            });
        }
    }
    Ok(())
}

fn note(resource: Resource, object: &Object, is_warning: bool, reason: &str, message: String, plan: &mut Plan) {
    plan.writes.push(Write::Note(Note {
        about: Regarding::of(resource, object),
        component: COMPONENT,
        host: String::new(),
        is_warning,
        reason: reason.to_owned().into(),
        message,
    }));
}
