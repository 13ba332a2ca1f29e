//! Preemption: a Pod that does not fit on any node replaces Pods with a lower priority (`DefaultPreemption` of the
//! scheduler). PodDisruptionBudgets are ignored.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;

use super::fit::{Load, lacking, requests};
use super::plan::{Plan, Write};
use super::pods::{is_finished, status, time};
use super::ports;
use super::resource::{Resource, Target};
use super::sees::{Sees, conditions, put_condition};
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;

const COMPONENT: &str = "default-scheduler";

/// Plans the preemption on one of `nodes`, on which the Pod may fit if other Pods are removed. Returns the name of the
/// node; `None` if the Pod must not preempt, or if removing Pods with a lower priority would not be enough.
pub(crate) fn preempt(pod: &Object, nodes: &[&Arc<Object>], sees: &Sees<'_>, plan: &mut Plan) -> Option<String> {
    if Cursor::root(pod).text("spec.preemptionPolicy") == "Never" {
        return None;
    }
    let nominated = Cursor::root(pod).text("status.nominatedNodeName");
    let leaves = |it: &&Arc<Object>| on(nominated, it) && it.is_terminating() && priority(it) < priority(pod);
    if !nominated.is_empty() && sees.cluster.all(Resource::Pod).any(|it| leaves(&it)) {
        // The victims of the previous preemption are still on the node.
        return Some(nominated.to_owned());
    }
    let choices = nodes.iter().filter_map(|node| Some((*node, victims(pod, node, sees)?)));
    let (node, victims) = choices.min_by_key(|(node, victims)| {
        let priorities = || victims.iter().map(|it| priority(it));
        let starts = victims.iter().filter_map(|it| started(it)).min();
        let sum: i64 = priorities().map(|it| it + i64::from(i32::MAX)).sum();
        (
            priorities().max(),
            sum,
            victims.len(),
            Reverse(starts),
            node.name().to_owned(),
        )
    })?;
    for victim in victims {
        plan_eviction(pod, victim, node.name(), sees, plan);
    }
    Some(node.name().to_owned())
}

/// Returns the Pods to remove from a node: as few as possible, beginning with the lowest priority. `None` if the Pod
/// would not fit even without all Pods of lower priority.
fn victims<'a>(pod: &Object, node: &Object, sees: &Sees<'a>) -> Option<Vec<&'a Arc<Object>>> {
    let there = |it: &&Arc<Object>| on(node.name(), it) && !is_finished(it);
    let (mut lower, others): (Vec<&Arc<Object>>, Vec<&Arc<Object>>) = sees
        .cluster
        .all(Resource::Pod)
        .filter(there)
        .partition(|it| priority(it) < priority(pod));
    lower.sort_by_key(|it| (Reverse(priority(it)), started(it)));
    let mut stays: Vec<&Arc<Object>> = others;
    let asked = requests(pod);
    let fits = |stays: &[&Arc<Object>]| {
        let mut load = Load::default();
        stays.iter().for_each(|it| load.add(it));
        let is_there = |it: &Object| stays.iter().any(|stays| stays.uid() == it.uid());
        lacking(&asked, node, Some(&load)).is_empty() && !ports::conflict(pod, node.name(), sees, is_there)
    };
    if lower.is_empty() || !fits(&stays) {
        return None;
    }
    let mut victims = Vec::new();
    for candidate in lower {
        stays.push(candidate);
        if !fits(&stays) {
            stays.pop();
            victims.push(candidate);
        }
    }
    Some(victims)
}

fn on(node: &str, pod: &Object) -> bool {
    Cursor::root(pod).text("spec.nodeName") == node
}

fn priority(pod: &Object) -> i64 {
    Cursor::root(pod).integer("spec.priority").unwrap_or(0)
}

fn started(pod: &Object) -> Option<Timestamp> {
    time(Cursor::root(pod).text("status.startTime"))
}

fn plan_eviction(pod: &Object, victim: &Object, node: &str, sees: &Sees<'_>, plan: &mut Plan) {
    if victim.is_terminating() {
        return;
    }
    let mut list = conditions(status(victim));
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "lastProbeTime": null, "lastTransitionTime": sees.stamp(),
        "reason": "PreemptionByScheduler",
        "message": "default-scheduler: preempting to accommodate a higher priority pod",
    });
    if let Value::Object(condition) = condition {
        put_condition(&mut list, condition);
    }
    plan.merge_status(Resource::Pod, victim, json!({"status": {"conditions": list}}));
    plan.writes.push(Write::Delete {
        at: Target::of(Resource::Pod, victim),
        grace: None,
        propagation: None,
        told: None,
    });
    let message = format!("Preempted by pod {} on node {node}", pod.uid());
    plan.note((Resource::Pod, victim), COMPONENT, "Preempted", message);
}
