//! Deployments: one ReplicaSet per revision of the template, and the rollout from the old ones to the new one.

mod history;
mod progress;
mod rollout;

use std::sync::Arc;

use super::controller::WorkloadController;
use super::plan::Plan;
use super::pods::{self, created, scaled, spec};
use super::resource::Resource;
use super::sees::{Sees, selector_of};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::WorkerRow;

/// The label that distinguishes the Pods of different templates.
pub(crate) const HASH_LABEL: &str = "pod-template-hash";

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "deployment",
    &[WorkloadController {
        owns: true,
        adopts: Some(Resource::ReplicaSet),
        concerns: rollout::waiting_for_last_pod,
        reports_refusals: true,
        ..WorkloadController::new(Resource::Deployment, COMPONENT, sync)
    }],
);

const COMPONENT: &str = "deployment-controller";
const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";

/// A Deployment and its ReplicaSets, oldest first.
struct Rollout<'a> {
    deployment: &'a Object,
    sets: Vec<&'a Arc<Object>>,
    /// The ReplicaSet of the current template, if it exists.
    new: Option<&'a Arc<Object>>,
    sees: &'a Sees<'a>,
}

/// Plans the work for a Deployment.
pub(crate) fn sync(deployment: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    let Some(selector) = selector_of(spec(deployment), "selector") else {
        return plan;
    };
    let owner = (Resource::Deployment, deployment);
    let mut sets = sees.claimed(Resource::ReplicaSet, owner, &selector, &mut plan);
    sets.sort_by(|one, other| {
        created(one)
            .cmp(&created(other))
            .then_with(|| one.name().cmp(other.name()))
    });
    let template = Cursor::root(deployment).map_or_empty("spec.template");
    let new = sets
        .iter()
        .copied()
        .find(|set| history::same_template(Cursor::root(set).map_or_empty("spec.template"), template));
    let rollout = Rollout {
        deployment,
        sets,
        new,
        sees,
    };
    if deployment.is_terminating() {
        rollout.write_plain_status(&mut plan);
        return plan;
    }
    if rollout.note_pause(&mut plan) {
        return plan;
    }
    let is_paused = Cursor::root(deployment).flag("spec.paused") == Some(true);
    if is_paused || rollout.was_scaled() {
        if rollout.keep_history(false, &mut plan) {
            return plan;
        }
        rollout.scale(&mut plan);
        if is_paused {
            rollout.clean_up(&mut plan);
        }
        rollout.write_plain_status(&mut plan);
        return plan;
    }
    match Cursor::root(deployment).text("spec.strategy.type") {
        "Recreate" => rollout.recreate(&mut plan),
        _ => rollout.roll(&mut plan),
    }
    plan
}

/// Returns `spec.replicas` of a Deployment or a ReplicaSet.
fn replicas(object: &Object) -> i64 {
    Cursor::root(object).integer("spec.replicas").unwrap_or(1)
}

/// Returns a count in the status of a ReplicaSet.
fn counted(set: &Object, field: &str) -> i64 {
    Cursor::root(pods::status(set)).integer(field).unwrap_or(0)
}

impl<'a> Rollout<'a> {
    fn old(&self) -> Vec<&'a Arc<Object>> {
        let new = self.new.map(|it| it.uid());
        self.sets.iter().copied().filter(|it| Some(it.uid()) != new).collect()
    }

    fn is_rolling(&self) -> bool {
        Cursor::root(self.deployment).text("spec.strategy.type") != "Recreate"
    }

    /// Returns the maximum number of Pods above the desired number.
    fn max_surge(&self) -> i64 {
        if !self.is_rolling() {
            return 0;
        }
        let most = scaled(self.rolling().get("maxSurge"), replicas(self.deployment), true);
        // Counts in the API have 32 bits.
        most.min(i32::MAX.into())
    }

    /// Returns the maximum number of unavailable Pods.
    fn max_unavailable(&self) -> i64 {
        let wanted = replicas(self.deployment);
        if !self.is_rolling() || wanted == 0 {
            return 0;
        }
        let most = scaled(self.rolling().get("maxUnavailable"), wanted, false);
        // If both were zero, the rollout could never progress.
        let most = if most == 0 && self.max_surge() == 0 { 1 } else { most };
        most.min(wanted)
    }

    fn rolling(&self) -> &'a Map {
        Cursor::root(self.deployment).map_or_empty("spec.strategy.rollingUpdate")
    }

    /// Scales a ReplicaSet unless it has this size, and writes an Event.
    fn scale_set(&self, set: &Object, wanted: i64, plan: &mut Plan) -> bool {
        replicas(set) != wanted && self.resize(set, wanted, plan)
    }

    /// Scales a ReplicaSet, or updates its annotations, and writes an Event.
    fn resize(&self, set: &Object, wanted: i64, plan: &mut Plan) -> bool {
        let had = replicas(set);
        let (desired, most) = (replicas(self.deployment), replicas(self.deployment) + self.max_surge());
        let is_annotated = |name: &str, number: i64| pods::annotation(set, name) == Some(&*number.to_string());
        if had == wanted && is_annotated(DESIRED, desired) && is_annotated(MAXIMUM, most) {
            return false;
        }
        let annotations = json!({DESIRED: desired.to_string(), MAXIMUM: most.to_string()});
        plan.merge(
            Resource::ReplicaSet,
            set,
            json!({"metadata": {"annotations": annotations}, "spec": {"replicas": wanted}}),
        );
        if had != wanted {
            self.tell_scaling(set.name(), had, wanted, plan);
        }
        had != wanted
    }

    fn tell_scaling(&self, set: &str, had: i64, wanted: i64, plan: &mut Plan) {
        let way = if wanted > had { "up" } else { "down" };
        let about = (Resource::Deployment, self.deployment);
        let message = format!("Scaled {way} replica set {set} from {had} to {wanted}");
        plan.note(about, COMPONENT, "ScalingReplicaSet", message);
    }
}

/// Returns the annotations of an object, for a patch.
fn annotations(object: &Object) -> Map {
    let annotations = object.metadata().and_then(|meta| meta.get("annotations"));
    annotations.and_then(Value::as_object).cloned().unwrap_or_default()
}
