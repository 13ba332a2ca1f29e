//! ReplicaSets and ReplicationControllers: maintains the specified number of Pods of their templates.

use std::collections::HashMap;
use std::sync::Arc;

use super::controller::WorkloadController;
use super::plan::{Plan, Regarding, Told};
use super::pods::{
    available_at, first_to_go, from_template, generation, is_active, is_available, is_ready, label, spec, status,
};
use super::resource::Resource;
use super::sees::{Sees, conditions, drop_condition, new_condition, put_condition, selector_of};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::selector::LabelSelector;
use crate::registry::types::cursor::Cursor;
use crate::workers::WorkerRow;

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "replicaset",
    &[
        WorkloadController {
            owns: true,
            adopts: Some(Resource::Pod),
            reports_refusals: true,
            ..WorkloadController::new(Resource::ReplicaSet, "replicaset-controller", |set, sees| {
                sync(Resource::ReplicaSet, set, sees)
            })
        },
        WorkloadController {
            owns: true,
            adopts: Some(Resource::Pod),
            reports_refusals: true,
            ..WorkloadController::new(
                Resource::ReplicationController,
                "replication-controller",
                |set, sees| sync(Resource::ReplicationController, set, sees),
            )
        },
    ],
);

/// Maximum number of Pods that one sync of a set creates or deletes; the next sync continues.
const BURST: usize = 500;

/// Plans the work for a ReplicaSet or a ReplicationController.
pub(crate) fn sync(resource: Resource, set: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    let Some(selector) = selector(resource, set) else {
        return plan;
    };
    let claimed = sees.claimed(Resource::Pod, (resource, set), &selector, &mut plan);
    let active: Vec<_> = claimed.iter().copied().filter(|it| is_active(it)).collect();
    let terminating = claimed
        .iter()
        .filter(|it| it.is_terminating() && !super::pods::is_finished(it))
        .count();
    if !set.is_terminating() {
        scale(resource, set, &active, sees, &mut plan);
    }
    let minimum = Cursor::root(set).integer("spec.minReadySeconds").unwrap_or(0);
    let next = next_status(resource, set, &active, terminating, sees);
    plan.status(resource, set, next);
    let waiting = active.iter().filter(|it| !is_available(it, minimum, sees.now));
    if let Some(at) = waiting.filter_map(|it| available_at(it, minimum)).min() {
        plan.look_again(at);
    }
    plan
}

/// Returns the selector; for a ReplicationController, it is built from a map of labels.
fn selector(resource: Resource, set: &Object) -> Option<LabelSelector> {
    if resource == Resource::ReplicationController {
        let labels = Cursor::root(set).map_or_empty("spec.selector");
        return LabelSelector::from_object(&json!({"matchLabels": labels}))
            .ok()
            .flatten();
    }
    selector_of(spec(set), "selector")
}

fn component(resource: Resource) -> &'static str {
    match resource {
        Resource::ReplicationController => "replication-controller",
        _ => "replicaset-controller",
    }
}

/// Returns the Events that a controller records when it creates a Pod, or fails to.
pub(crate) fn told_of_creation(resource: Resource, owner: &Object, component: &'static str) -> Told {
    Told {
        about: Regarding::of(resource, owner),
        component,
        success: Some(("SuccessfulCreate", "Created pod: {}".to_owned())),
        failure: ("FailedCreate", "Error creating: {}".to_owned()),
    }
}

/// Returns the Events that a controller records when it deletes a Pod, or fails to.
pub(crate) fn told_of_deletion(resource: Resource, owner: &Object, component: &'static str) -> Told {
    Told {
        about: Regarding::of(resource, owner),
        component,
        success: Some(("SuccessfulDelete", "Deleted pod: {}".to_owned())),
        failure: ("FailedDelete", "Error deleting: {}".to_owned()),
    }
}

/// Creates missing Pods, or deletes surplus ones.
fn scale(resource: Resource, set: &Object, active: &[&Arc<Object>], sees: &Sees<'_>, plan: &mut Plan) {
    let wanted = usize::try_from(Cursor::root(set).integer("spec.replicas").unwrap_or(1)).unwrap_or(0);
    let template = Cursor::root(set).map_or_empty("spec.template");
    for _ in 0..wanted.saturating_sub(active.len()).min(BURST) {
        let told = told_of_creation(resource, set, component(resource));
        plan.create_and_tell(Resource::Pod, from_template(resource, set, template), Some(told));
    }
    let surplus = active.len().saturating_sub(wanted).min(BURST);
    if surplus == 0 {
        return;
    }
    let siblings = siblings(set, sees);
    for pod in first_to_go(
        active,
        |node| siblings.get(node).copied().unwrap_or(0),
        surplus,
        sees.now,
    ) {
        let told = told_of_deletion(resource, set, component(resource));
        plan.delete_and_tell(Resource::Pod, pod, Some(told));
    }
}

/// Counts the active Pods of all sets with the same owner on each node.
fn siblings(set: &Object, sees: &Sees<'_>) -> HashMap<String, usize> {
    let mut count = HashMap::new();
    let owner = super::cluster::controller_of(set).map(|(_, _, uid)| uid);
    let sets: Vec<&str> = match owner {
        Some(uid) => sees
            .cluster
            .owned_by(Resource::ReplicaSet, uid)
            .map(|it| it.uid())
            .collect(),
        None => vec![set.uid()],
    };
    for uid in sets {
        for pod in sees.cluster.owned_by(Resource::Pod, uid).filter(|it| is_active(it)) {
            *count
                .entry(Cursor::root(pod).text("spec.nodeName").to_owned())
                .or_default() += 1;
        }
    }
    count
}

fn next_status(resource: Resource, set: &Object, active: &[&Arc<Object>], terminating: usize, sees: &Sees<'_>) -> Map {
    let minimum = Cursor::root(set).integer("spec.minReadySeconds").unwrap_or(0);
    let labels = Cursor::root(set).map_or_empty("spec.template.metadata.labels");
    let has_all = |pod: &Object| labels.iter().all(|(key, value)| label(pod, key) == value.as_str());
    let count = |test: &dyn Fn(&Object) -> bool| active.iter().filter(|it| test(it)).count();
    let mut next = status(set).clone();
    let mut put = |field: &str, number: usize| {
        // Zeros are omitted, as in Go, except for `replicas`.
        match (field, number) {
            ("replicas", _) => drop(next.insert(field.into(), number.into())),
            (_, 0) => drop(next.remove(field)),
            (_, _) => drop(next.insert(field.into(), number.into())),
        }
    };
    put("replicas", active.len());
    put("fullyLabeledReplicas", count(&has_all));
    put("readyReplicas", count(&is_ready));
    put("availableReplicas", count(&|pod| is_available(pod, minimum, sees.now)));
    if resource == Resource::ReplicaSet {
        next.insert("terminatingReplicas".into(), terminating.into());
    }
    next.insert("observedGeneration".into(), generation(set).into());
    let mut list = conditions(&next);
    match sees.failure {
        Some(why) => {
            let wanted = Cursor::root(set).integer("spec.replicas").unwrap_or(1);
            let has = i64::try_from(active.len()).unwrap_or(i64::MAX);
            let reason = if has < wanted { "FailedCreate" } else { "FailedDelete" };
            put_condition(
                &mut list,
                new_condition("ReplicaFailure", "True", reason, why, &sees.stamp()),
            );
        }
        None => drop_condition(&mut list, "ReplicaFailure"),
    }
    if list.is_empty() {
        next.remove("conditions");
    } else {
        next.insert("conditions".into(), Value::Array(list));
    }
    next
}
