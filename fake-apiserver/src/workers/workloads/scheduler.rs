//! The scheduler: assigns Pods to nodes by names, selectors, taints, affinity, topology spread, host ports, claims and
//! resources, and preempts Pods of lower priority. Among the nodes that fit, it selects the nominated node of the Pod,
//! then the node with the highest score for preferences, then the node with the fewest Pods, then the first by name.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::cluster::Cluster;
use super::controller::Changed;
use super::fit::{Amounts, Load, lacking, never_fits, requests};
use super::node_rules::{fits_affinity, tolerates};
use super::placement::Placement;
use super::plan::{Note, Plan, Regarding, Write};
use super::pod_claims::claims;
use super::pods::{condition, is_active, is_finished, nomination, spec};
use super::ports;
use super::preemption::{self, NEVER, Nominated, Preemption, preempt, priority};
use super::resource::{Resource, Target, key_of};
use super::sees::{Sees, conditions};
use super::volume_binding;
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;

const COMPONENT: &str = "default-scheduler";

/// Reason for a node on which the removal of other Pods would not make room.
const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";

/// Enqueues the unscheduled Pods that a change of a node, a claim, a volume, a class or another Pod may make
/// schedulable.
pub(crate) fn concerns(change: &Changed<'_>, cluster: &Cluster, add: &mut dyn FnMut(Key)) {
    match change.resource {
        Resource::Node => add_by_priority(cluster.unassigned(), add),
        Resource::Pod => {
            let was_there = |pod: &Object| !Cursor::root(pod).text("spec.nodeName").is_empty() && !is_finished(pod);
            let has_left = change.old.is_some_and(was_there) && change.new.is_none_or(is_finished);
            let reserved = change.old.map_or("", nomination);
            let is_released = !reserved.is_empty() && change.new.map_or("", nomination) != reserved;
            if has_left || is_released {
                add_by_priority(cluster.unassigned(), add);
            }
            // A Pod that is new on a node, or that has other labels, only affects Pods with rules about other Pods.
            let place = |pod: &Object| (Cursor::root(pod).text("spec.nodeName").to_owned(), labels(pod));
            let is_moved = |new: &Object| was_there(new) && change.old.is_none_or(|old| place(old) != place(new));
            if change.new.is_some_and(is_moved) {
                let waiting = cluster.unassigned().filter(|it| depends_on_pods(it));
                add_by_priority(waiting, add);
            }
        }
        Resource::PersistentVolumeClaim => {
            let pods = cluster
                .unassigned()
                .filter(|it| it.namespace() == change.key.namespace());
            let users = pods.filter(|pod| claims(pod).iter().any(|it| it == change.key.name()));
            add_by_priority(users, add);
        }
        // A free volume, or a class, may make the claims of a Pod usable (`EventsToRegister` of `VolumeBinding`).
        Resource::PersistentVolume | Resource::StorageClass => {
            let is_class = change.resource == Resource::StorageClass;
            let is_usable = |it: &Object| is_class || Cursor::root(it).text("status.phase") == "Available";
            if change.new.is_some_and(is_usable) {
                let users = cluster.unassigned().filter(|pod| !claims(pod).is_empty());
                add_by_priority(users, add);
            }
        }
        _ => {}
    }
}

/// Enqueues Pods, with a higher priority first (`PrioritySort`).
fn add_by_priority<'a>(pods: impl Iterator<Item = &'a Arc<Object>>, add: &mut dyn FnMut(Key)) {
    let mut pods: Vec<&Arc<Object>> = pods.collect();
    pods.sort_by_key(|it| Reverse(priority(it)));
    pods.into_iter().for_each(|it| add(key_of(it)));
}

fn labels(pod: &Object) -> Vec<(String, String)> {
    let labels = pod.labels().map(|(key, value)| (key.to_owned(), value.to_owned()));
    labels.collect()
}

/// Returns `true` if the placement of a Pod depends on other Pods.
fn depends_on_pods(pod: &Object) -> bool {
    let pod_spec = Cursor::root(spec(pod));
    [
        "affinity.podAffinity",
        "affinity.podAntiAffinity",
        "topologySpreadConstraints",
    ]
    .iter()
    .any(|path| pod_spec.is_set(path))
}

/// Returns `true` if the scheduler must find a node for a Pod.
pub(crate) fn is_waiting(pod: &Object) -> bool {
    let pod_spec = Cursor::root(spec(pod));
    let is_ours = matches!(pod_spec.text("schedulerName"), "" | "default-scheduler");
    let is_free = pod_spec.is_empty("nodeName") && pod_spec.is_empty("schedulingGates");
    is_ours && is_free && is_active(pod)
}

/// Plans the work for a Pod without a node. `load` contains the load of each node.
pub(crate) fn sync(pod: &Object, load: &BTreeMap<String, Load>, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    if !is_waiting(pod) {
        return plan;
    }
    if let Some(why) = volume_binding::unusable(pod, sees) {
        let total = sees.cluster.all(Resource::Node).count();
        let subject = format!("0/{total} nodes are available");
        let preemption = match preemption::is_never(pod) {
            true => NEVER.to_owned(),
            false => {
                withdraw(pod, &mut plan);
                format!("{subject}: {total} {NOT_HELPFUL}.")
            }
        };
        refuse(
            pod,
            &format!("{subject}: {why}. preemption: {preemption}"),
            sees,
            &mut plan,
        );
        return plan;
    }
    let node = match choose_node(pod, load, sees) {
        Ok(node) => node,
        Err(unfit) => {
            let why = match preempt(pod, &unfit.candidates, sees, &mut plan) {
                Preemption::Nominates(node) => {
                    if nomination(pod) != node {
                        let patch = json!({"status": {"nominatedNodeName": node}});
                        plan.merge_status(Resource::Pod, pod, patch);
                    }
                    format!("{}.", unfit.reasons)
                }
                Preemption::NotEligible(why) => format!("{}. preemption: {why}", unfit.reasons),
                Preemption::NotHelpful(refusals) => {
                    withdraw(pod, &mut plan);
                    format!("{}. preemption: {}.", unfit.reasons, unfit.not_helpful(refusals))
                }
            };
            refuse(pod, &why, sees, &mut plan);
            return plan;
        }
    };
    if !volume_binding::bind(pod, &node, sees, &mut plan) {
        return plan;
    }
    plan.writes.push(Write::Bind {
        pod: Target::of(Resource::Pod, pod),
        node: node.clone(),
    });
    let message = format!("Successfully assigned {}/{} to {node}", pod.namespace(), pod.name());
    plan.note((Resource::Pod, pod), COMPONENT, "Scheduled", message);
    plan
}

/// Removes the nomination of a Pod that preemption does not help.
fn withdraw(pod: &Object, plan: &mut Plan) {
    if !nomination(pod).is_empty() {
        plan.merge_status(Resource::Pod, pod, preemption::no_nomination());
    }
}

/// The reasons why no node fits a Pod.
struct Unfit<'a> {
    /// Number of nodes.
    total: usize,
    reasons: String,
    /// The nodes on which the Pod may fit if other Pods are removed.
    candidates: Vec<&'a Arc<Object>>,
}

impl Unfit<'_> {
    /// Returns the text about the reasons why preemption is not helpful, with the reasons of the candidates.
    fn not_helpful(&self, refusals: Vec<String>) -> String {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        counts.insert(NOT_HELPFUL.to_owned(), self.total - self.candidates.len());
        for why in refusals {
            *counts.entry(why).or_default() += 1;
        }
        unavailable(self.total, counts.iter().map(|(why, count)| (why.as_str(), *count)))
    }
}

fn choose_node<'a>(pod: &Object, load: &BTreeMap<String, Load>, sees: &Sees<'a>) -> Result<String, Unfit<'a>> {
    let nodes: Vec<&Arc<Object>> = sees.cluster.all(Resource::Node).collect();
    let mut refusals: BTreeMap<String, usize> = BTreeMap::new();
    let (mut fitting, mut candidates) = (Vec::new(), Vec::new());
    let filters = Filters {
        pod,
        load,
        sees,
        asked: requests(pod),
        placement: Placement::of(pod, &nodes, sees),
        nominated: Nominated::before(pod, sees.cluster),
        claims: volume_binding::existing(pod, sees),
    };
    for node in &nodes {
        let Some(unsuitable) = filters.check(node) else {
            fitting.push(*node);
            continue;
        };
        if unsuitable.can_change {
            candidates.push(*node);
        }
        for why in unsuitable.reasons {
            *refusals.entry(why).or_default() += 1;
        }
    }
    let best = fitting.into_iter().min_by_key(|node| {
        let pods = load.get(node.name()).map_or(0, |it| it.pods);
        let is_other = node.name() != nomination(pod);
        (is_other, -filters.placement.score(node), pods, node.name().to_owned())
    });
    best.map(|it| it.name().to_owned()).ok_or_else(|| Unfit {
        total: nodes.len(),
        reasons: unavailable(nodes.len(), refusals.iter().map(|(why, count)| (why.as_str(), *count))),
        candidates,
    })
}

/// The data with which nodes are checked for a Pod.
struct Filters<'f, 'a> {
    pod: &'f Object,
    /// The load of each node.
    load: &'f BTreeMap<String, Load>,
    sees: &'f Sees<'a>,
    asked: Amounts,
    placement: Placement<'f>,
    nominated: Nominated<'a>,
    claims: Vec<&'a Arc<Object>>,
}

/// The reasons why a node does not fit a Pod.
struct Unsuitable {
    reasons: Vec<String>,
    /// Set if the removal of other Pods may help: the code `Unschedulable` of the scheduler's plugins, as opposed to
    /// `UnschedulableAndUnresolvable`.
    can_change: bool,
}

impl Filters<'_, '_> {
    /// Returns the reasons why a node does not fit the Pod; `None` if it fits. The checks have the order of the
    /// scheduler's plugins, and the first check that fails determines the result.
    fn check(&self, node: &Object) -> Option<Unsuitable> {
        let unsuitable = |reasons, can_change| Some(Unsuitable { reasons, can_change });
        if let Some(why) = refusal(self.pod, node) {
            return unsuitable(vec![why.to_owned()], false);
        }
        let others = self.sees.cluster.on_node(node.name());
        if ports::conflict(self.pod, others.chain(self.nominated.on(node.name()))) {
            return unsuitable(vec![ports::NO_FREE_PORTS.to_owned()], true);
        }
        let present = self.load.get(node.name());
        let reserved = self.nominated.load(node.name(), present);
        let lacking = lacking(&self.asked, node, reserved.as_ref().or(present));
        if !lacking.is_empty() {
            return unsuitable(lacking, !never_fits(&self.asked, node));
        }
        let unusable = volume_binding::refusals(&self.claims, node, self.sees);
        if !unusable.is_empty() {
            return unsuitable(unusable, false);
        }
        let refused = self.placement.refusal(node)?;
        unsuitable(vec![refused.why.to_owned()], refused.can_change)
    }
}

/// Returns the message that no node is available, with the number of nodes for each reason. The reasons are sorted as
/// strings, including their numbers.
fn unavailable<'a>(total: usize, reasons: impl Iterator<Item = (&'a str, usize)>) -> String {
    let texts = reasons.filter(|(_, count)| *count > 0);
    let mut texts: Vec<String> = texts.map(|(why, count)| format!("{count} {why}")).collect();
    texts.sort();
    format!("0/{total} nodes are available: {}", texts.join(", "))
}

/// Returns the reason why a node does not fit a Pod.
fn refusal(pod: &Object, node: &Object) -> Option<&'static str> {
    let cordoned = Cursor::root(node).flag("spec.unschedulable") == Some(true);
    let tolerates_cordon = tolerates(
        pod,
        &json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}),
    );
    if cordoned && !tolerates_cordon {
        return Some("node(s) were unschedulable");
    }
    for taint in Cursor::root(node).list("spec.taints") {
        let field = |name: &str| taint.get(name).and_then(Value::as_str).unwrap_or_default();
        let keeps_out = matches!(field("effect"), "NoSchedule" | "NoExecute");
        if keeps_out && !tolerates(pod, taint) {
            if cordoned && field("key") == "node.kubernetes.io/unschedulable" {
                continue;
            }
            return Some("node(s) had untolerated taint(s)");
        }
    }
    (!fits_affinity(pod, node)).then_some("node(s) didn't match Pod's node affinity/selector")
}

/// Adds a write of the condition `PodScheduled=False` to the plan, with the reason why the Pod is unschedulable.
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
        reason: "FailedScheduling".into(),
        message: why.to_owned(),
    }));
}
