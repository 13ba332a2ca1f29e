//! The scheduler: puts Pods on nodes. It knows names, selectors, taints, required node affinity, claims and resources,
//! but not how many Pods a node takes. Of the nodes that fit, the one with the fewest Pods is taken, then the first by
//! name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cluster::Cluster;
use super::controller::Changed;
use super::fit::{Load, lacking, requests};
use super::plan::{Note, Plan, Regarding, Write};
use super::pods::{annotation, condition, is_finished, spec};
use super::resource::{Resource, Target, key_of};
use super::sees::{Sees, conditions};
use super::volumes::{SELECTED_NODE, claims};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;

/// The node where the test made none. No object of this name is made.
pub(crate) const DEFAULT_NODE: &str = "node-0";

const COMPONENT: &str = "default-scheduler";

/// Adds the Pods without a node that a change may let in: of a node, of a Pod that leaves one, of a claim.
pub(crate) fn concerns(change: &Changed<'_>, cluster: &Cluster, add: &mut dyn FnMut(Key)) {
    let waits = |it: &&Arc<Object>| Cursor::root(it).text("spec.nodeName").is_empty();
    match change.resource {
        Resource::Node => cluster.all(Resource::Pod).filter(waits).for_each(|it| add(key_of(it))),
        Resource::Pod => {
            let makes_room = |old: &Object| {
                let was_there = !Cursor::root(old).text("spec.nodeName").is_empty();
                was_there && change.new.is_none_or(is_finished) && !requests(old).is_empty()
            };
            if change.old.is_some_and(makes_room) {
                cluster.all(Resource::Pod).filter(waits).for_each(|it| add(key_of(it)));
            }
        }
        Resource::PersistentVolumeClaim => {
            let pods = cluster.within(Resource::Pod, change.key.namespace()).filter(waits);
            let users = pods.filter(|pod| claims(pod).iter().any(|it| it == change.key.name()));
            users.for_each(|it| add(key_of(it)));
        }
        _ => {}
    }
}

/// Plans the work for a Pod without a node. `load` is that of each node.
pub(crate) fn sync(pod: &Object, load: &BTreeMap<String, Load>, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    let pod_spec = spec(pod);
    let is_ours = matches!(Cursor::root(pod_spec).text("schedulerName"), "" | "default-scheduler");
    let is_gated = !Cursor::root(pod_spec).is_empty("schedulingGates");
    if !Cursor::root(pod_spec).is_empty("nodeName") || pod.is_terminating() || is_finished(pod) || !is_ours || is_gated
    {
        return plan;
    }
    let node = match choose_node(pod, load, sees) {
        Ok(node) => node,
        Err(why) => {
            refuse(pod, &why, sees, &mut plan);
            return plan;
        }
    };
    match claims_are_bound(pod, &node, sees, &mut plan) {
        Ok(true) => {}
        Ok(false) => return plan,
        Err(why) => {
            refuse(pod, &why, sees, &mut plan);
            return plan;
        }
    }
    plan.writes.push(Write::Bind {
        pod: Target::of(Resource::Pod, pod),
        node: node.clone(),
    });
    let message = format!("Successfully assigned {}/{} to {node}", pod.namespace(), pod.name());
    plan.note((Resource::Pod, pod), COMPONENT, "Scheduled", message);
    plan
}

fn choose_node(pod: &Object, load: &BTreeMap<String, Load>, sees: &Sees<'_>) -> Result<String, String> {
    let nodes: Vec<&Arc<Object>> = sees.cluster.all(Resource::Node).collect();
    if nodes.is_empty() {
        return Ok(DEFAULT_NODE.to_owned());
    }
    let mut refusals: BTreeMap<String, usize> = BTreeMap::new();
    let mut fitting = Vec::new();
    // Where nothing but room is lacking, a Pod that is worth less could have made it.
    let mut full = 0;
    let asked = requests(pod);
    for node in &nodes {
        let mut count = |why: String| *refusals.entry(why).or_default() += 1;
        if let Some(why) = refusal(pod, node) {
            count(why);
            continue;
        }
        let lacking = lacking(&asked, node, load.get(node.name()));
        if lacking.is_empty() {
            fitting.push(node.name());
        } else {
            full += 1;
            lacking.into_iter().for_each(count);
        }
    }
    let fewest = fitting
        .into_iter()
        .min_by_key(|name| (load.get(*name).map_or(0, |it| it.pods), (*name).to_owned()));
    fewest.map(str::to_owned).ok_or_else(|| {
        let reasons: Vec<String> = refusals.iter().map(|(why, count)| format!("{count} {why}")).collect();
        let total = nodes.len();
        let preemption = [
            (full, "No preemption victims found for incoming pod"),
            (total - full, "Preemption is not helpful for scheduling"),
        ];
        let mut preemption: Vec<String> = preemption
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, why)| format!("{count} {why}"))
            .collect();
        preemption.sort();
        format!(
            "0/{total} nodes are available: {}. preemption: 0/{total} nodes are available: {}.",
            reasons.join(", "),
            preemption.join(", ")
        )
    })
}

/// Returns the reason for which a node does not fit a Pod.
fn refusal(pod: &Object, node: &Object) -> Option<String> {
    let cordoned = Cursor::root(node).flag("spec.unschedulable") == Some(true);
    let tolerates_cordon = tolerates(
        pod,
        &json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}),
    );
    if cordoned && !tolerates_cordon {
        return Some("node(s) were unschedulable".to_owned());
    }
    if !fits_affinity(pod, node) {
        return Some("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    for taint in Cursor::root(node).list("spec.taints") {
        let field = |name: &str| taint.get(name).and_then(Value::as_str).unwrap_or_default();
        let keeps_out = matches!(field("effect"), "NoSchedule" | "NoExecute");
        if keeps_out && !tolerates(pod, taint) {
            if cordoned && field("key") == "node.kubernetes.io/unschedulable" {
                continue;
            }
            return Some(format!(
                "node(s) had untolerated taint(s) {{{}: {}}}",
                field("key"),
                field("value")
            ));
        }
    }
    None
}

/// Returns `true` if a Pod tolerates a taint.
pub(crate) fn tolerates(pod: &Object, taint: &Value) -> bool {
    let of_taint = |name: &str| taint.get(name).and_then(Value::as_str).unwrap_or_default();
    Cursor::root(pod).maps("spec.tolerations").any(|it| {
        let (key, effect) = (Cursor::root(it).text("key"), Cursor::root(it).text("effect"));
        let key_fits = key.is_empty() || key == of_taint("key");
        let effect_fits = effect.is_empty() || effect == of_taint("effect");
        let value_fits = match Cursor::root(it).text("operator") {
            "Exists" => true,
            _ => !key.is_empty() && Cursor::root(it).text("value") == of_taint("value"),
        };
        key_fits && effect_fits && value_fits
    })
}

/// Returns `true` if a node matches `nodeSelector` and the required node affinity of a Pod.
pub(crate) fn fits_affinity(pod: &Object, node: &Object) -> bool {
    let empty = Map::new();
    let labels = node
        .metadata()
        .map_or(&empty, |meta| Cursor::root(meta).map_or_empty("labels"));
    let selector = Cursor::root(pod).map_or_empty("spec.nodeSelector");
    if !selector.iter().all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = Cursor::root(pod).map_or_empty("spec.affinity.nodeAffinity");
    let Some(required) = Cursor::root(affinity).map("requiredDuringSchedulingIgnoredDuringExecution") else {
        return true;
    };
    Cursor::root(required).maps("nodeSelectorTerms").any(|term| {
        let by_label = Cursor::root(term)
            .maps("matchExpressions")
            .all(|it| expression_holds(it, labels.get(Cursor::root(it).text("key")).and_then(Value::as_str)));
        let by_field = Cursor::root(term)
            .maps("matchFields")
            .all(|it| expression_holds(it, Some(node.name())));
        let is_empty = Cursor::root(term).is_empty("matchExpressions") && Cursor::root(term).is_empty("matchFields");
        by_label && by_field && !is_empty
    })
}

fn expression_holds(expression: &Map, value: Option<&str>) -> bool {
    let values = Cursor::root(expression).list("values");
    let is_in = value.is_some_and(|value| values.iter().any(|it| it.as_str() == Some(value)));
    let compare = || {
        let limit = values
            .first()
            .and_then(Value::as_str)
            .and_then(|it| it.parse::<i64>().ok());
        value.and_then(|it| it.parse::<i64>().ok()).zip(limit)
    };
    match Cursor::root(expression).text("operator") {
        "In" => is_in,
        "NotIn" => !is_in,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare().is_some_and(|(value, limit)| value > limit),
        "Lt" => compare().is_some_and(|(value, limit)| value < limit),
        _ => false,
    }
}

/// Returns `true` if all claims of a Pod are bound; those that wait for a consumer get the node.
fn claims_are_bound(pod: &Object, node: &str, sees: &Sees<'_>, plan: &mut Plan) -> Result<bool, String> {
    let mut bound = true;
    for name in claims(pod) {
        let Some(claim) = sees
            .cluster
            .find(Resource::PersistentVolumeClaim, pod.namespace(), &name)
        else {
            return Err(format!("persistentvolumeclaim \"{name}\" not found"));
        };
        if claim.is_terminating() {
            return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        if Cursor::root(claim).text("status.phase") == "Bound" {
            continue;
        }
        bound = false;
        if super::volumes::waits_for_consumer(claim, sees) {
            if annotation(claim, SELECTED_NODE).is_none() {
                let patch = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
                plan.merge(Resource::PersistentVolumeClaim, claim, patch);
            }
        } else {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
    }
    Ok(bound)
}

/// Says in the Pod's status why it has no node.
fn refuse(pod: &Object, why: &str, sees: &Sees<'_>, plan: &mut Plan) {
    let current = condition(pod, "PodScheduled");
    if current
        .is_some_and(|it| Cursor::root(it).text("message") == why && Cursor::root(it).text("reason") == "Unschedulable")
    {
        return;
    }
    let since = current
        .filter(|it| Cursor::root(it).text("status") == "False")
        .map(|it| Cursor::root(it).text("lastTransitionTime").to_owned());
    let mut scheduled = json!({
        "type": "PodScheduled", "status": "False", "lastProbeTime": null, "reason": "Unschedulable", "message": why,
        "lastTransitionTime": since.unwrap_or_else(|| sees.stamp()),
    });
    if let Some(generation) = pod.metadata().and_then(|meta| Cursor::root(meta).integer("generation")) {
        scheduled["observedGeneration"] = generation.into();
    }
    let mut list = conditions(super::pods::status(pod));
    list.retain(|it| it.get("type").and_then(Value::as_str) != Some("PodScheduled"));
    list.push(scheduled);
    plan.merge_status(Resource::Pod, pod, json!({"status": {"conditions": list}}));
    plan.writes.push(Write::Note(Note {
        about: Regarding::of(Resource::Pod, pod),
        component: COMPONENT,
        host: String::new(),
        is_warning: true,
        reason: "FailedScheduling",
        message: why.to_owned(),
    }));
}
