//! DaemonSets: maintains one Pod of each DaemonSet on each suitable Node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::back_off::FailedPods;
use super::controller::{Sync, WorkloadController};
use super::kubelet::Nodes;
use super::node_rules::{fits_affinity, tolerates};
use super::plan::Plan;
use super::pods::{
    annotation, available_at, from_template, generation, is_available, is_finished, is_ready, label, phase, scaled,
    spec, status,
};
use super::replica_set::{told_of_creation, told_of_deletion};
use super::resource::{Resource, key_of};
use super::revisions;
use super::sees::{Sees, selector_of};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::WorkerRow;

const COMPONENT: &str = "daemonset-controller";

/// Taints that all Pods of DaemonSets tolerate.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "daemonset",
    &[WorkloadController {
        owns: true,
        adopts: Some(Resource::Pod),
        reports_refusals: true,
        concerns: |change, cluster, add| {
            // Only labels and taints determine whether a Node runs a Pod (Go's `shouldIgnoreNodeUpdate`).
            let shape = |node: &Object| {
                let labels: Vec<_> = node
                    .labels()
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect();
                (labels, Cursor::root(node).list("spec.taints").to_vec())
            };
            if change.resource == Resource::Node && change.old.map(shape) != change.new.map(shape) {
                cluster.all(Resource::DaemonSet).for_each(|it| add(key_of(it)));
            }
        },
        sync: Sync::Nodes(sync),
        ..WorkloadController::new(Resource::DaemonSet, "daemon-set-controller", |_, _| Plan::EMPTY)
    }],
);

/// The Pods of a DaemonSet by node, in the order of [`by_node`].
type ByNode<'a> = BTreeMap<String, Vec<&'a Arc<Object>>>;

/// A Node, and the decision about the Pod of a DaemonSet on it.
struct Host<'a> {
    node: &'a Arc<Object>,
    /// Set if the Node should run a Pod.
    is_wanted: bool,
    /// Set if a Pod that runs on the Node may stay.
    may_stay: bool,
}

/// Plans the work for a DaemonSet.
fn sync(set: &Object, sees: &Sees<'_>, nodes: &mut Nodes) -> Plan {
    let mut plan = Plan::default();
    let Some(selector) = selector_of(spec(set), "selector").filter(|_| !set.is_terminating()) else {
        return plan;
    };
    let claimed = sees.claimed(Resource::Pod, (Resource::DaemonSet, set), &selector, &mut plan);
    let known = revisions::revisions_of(Resource::DaemonSet, set, sees, &mut plan);
    let Some(update) = known.update else {
        return plan;
    };
    let live: Vec<&str> = claimed
        .iter()
        .filter_map(|pod| label(pod, revisions::HASH_LABEL))
        .collect();
    let by_node = by_node(&claimed);
    let template = daemon_template(set, revisions::label_of(update));
    let shape = Object(template.clone());
    let hosts: Vec<Host<'_>> = sees
        .cluster
        .all(Resource::Node)
        .map(|node| Host::of(&shape, node))
        .collect();
    let wanted: Vec<&Arc<Object>> = hosts.iter().filter(|it| it.is_wanted).map(|it| it.node).collect();
    let update_of_set = Update {
        set,
        hash: revisions::label_of(update),
        template: &template,
        surge: surge(set, wanted.len()),
        minimum: Cursor::root(set).integer("spec.minReadySeconds").unwrap_or(0),
        sees,
    };
    let failed = nodes.daemon_sets.entry(set.uid().to_owned()).or_default();
    place(&update_of_set, &hosts, &by_node, failed, &mut plan);
    match update_of_set.surge {
        0 => roll(&update_of_set, &wanted, &by_node, &mut plan),
        _ => roll_by_surge(&update_of_set, &wanted, &by_node, &mut plan),
    }
    write_status(&update_of_set, &hosts, &by_node, &mut plan);
    revisions::clean_up(set, &known, &live, true, &mut plan);
    plan
}

/// Groups Pods by their nodes; the Pods of a node are sorted: scheduled Pods first, then by age. Pods without a target
/// node are ignored, and so are Pods that have ended and are only kept by finalizers.
fn by_node<'a>(claimed: &[&'a Arc<Object>]) -> ByNode<'a> {
    let mut by_node = ByNode::new();
    let is_held = |pod: &Object| is_finished(pod) && pod.is_terminating();
    let counts = |pod: &&&Arc<Object>| !is_held(pod) && !node_of(pod).is_empty();
    for pod in claimed.iter().filter(counts) {
        by_node.entry(node_of(pod)).or_default().push(*pod);
    }
    for pods in by_node.values_mut() {
        pods.sort_by_key(|pod| (!is_scheduled(pod), super::pods::created(pod), pod.name().to_owned()));
    }
    by_node
}

fn is_scheduled(pod: &Object) -> bool {
    !Cursor::root(pod).text("spec.nodeName").is_empty()
}

/// Returns the node of a Pod, or the node for which the Pod was created.
fn node_of(pod: &Object) -> String {
    let node = Cursor::root(pod).text("spec.nodeName");
    if !node.is_empty() {
        return node.to_owned();
    }
    let affinity = Cursor::root(pod).map_or_empty("spec.affinity.nodeAffinity");
    let required = Cursor::root(affinity).map_or_empty("requiredDuringSchedulingIgnoredDuringExecution");
    let fields = Cursor::root(required)
        .maps("nodeSelectorTerms")
        .flat_map(|term| Cursor::root(term).maps("matchFields"));
    let mut names = fields.filter_map(|field| field.get("values")?.get(0)?.as_str());
    names.next().unwrap_or_default().to_owned()
}

/// Returns the template with the tolerations of DaemonSets and the labels of the revision.
fn daemon_template(set: &Object, hash: &str) -> Map {
    let mut template = Value::Object(Cursor::root(set).map_or_empty("spec.template").clone());
    template["metadata"]["labels"][revisions::HASH_LABEL] = hash.into();
    let generation = annotation(set, "deprecated.daemonset.template.generation").unwrap_or("1");
    template["metadata"]["labels"]["pod-template-generation"] = generation.into();
    let mut tolerations = template["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let uses_host = template["spec"]["hostNetwork"] == true;
    let network = uses_host.then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    for (key, effect) in TOLERATED.into_iter().chain(network) {
        let added = json!({"key": key, "operator": "Exists", "effect": effect});
        let is_same = |it: &&mut Value| {
            let text = |field: &str| it.get(field).and_then(Value::as_str).unwrap_or_default();
            text("key") == key && text("operator") == "Exists" && text("effect") == effect && text("value").is_empty()
        };
        match tolerations.iter_mut().find(is_same) {
            Some(known) => *known = added,
            None => tolerations.push(added),
        }
    }
    template["spec"]["tolerations"] = tolerations.into();
    template.as_object().cloned().unwrap_or_default()
}

impl<'a> Host<'a> {
    /// Decides about a Node (Go's `NodeShouldRunDaemonPod`). Cordoned nodes are not excluded, because the Pods tolerate
    /// their taint.
    fn of(pod: &Object, node: &'a Arc<Object>) -> Self {
        let named = Cursor::root(pod).text("spec.nodeName");
        let fits = fits_affinity(pod, node) && (named.is_empty() || named == node.name());
        let taints = Cursor::root(node).list("spec.taints");
        let bears = |effects: &[&str]| {
            let mut taints = taints
                .iter()
                .filter(|it| it["effect"].as_str().is_some_and(|it| effects.contains(&it)));
            taints.all(|taint| tolerates(pod, taint))
        };
        Self {
            node,
            is_wanted: fits && bears(&["NoSchedule", "NoExecute"]),
            may_stay: fits && bears(&["NoExecute"]),
        }
    }
}

/// The data required to update a DaemonSet to its newest revision.
struct Update<'a> {
    set: &'a Object,
    hash: &'a str,
    template: &'a Map,
    /// `maxSurge`, resolved to a number of nodes.
    surge: i64,
    minimum: i64,
    sees: &'a Sees<'a>,
}

impl Update<'_> {
    fn is_new(&self, pod: &Object) -> bool {
        label(pod, revisions::HASH_LABEL) == Some(self.hash)
    }

    fn is_available(&self, pod: &Object) -> bool {
        is_available(pod, self.minimum, self.sees.now)
    }

    fn delete(&self, pod: &Object, plan: &mut Plan) {
        let told = told_of_deletion(Resource::DaemonSet, self.set, COMPONENT);
        plan.delete_and_tell(Resource::Pod, pod, Some(told));
    }

    fn create(&self, node: &str, plan: &mut Plan) {
        let mut pod = from_template(Resource::DaemonSet, self.set, self.template);
        pin(&mut pod, node);
        plan.create_and_tell(
            Resource::Pod,
            pod,
            Some(told_of_creation(Resource::DaemonSet, self.set, COMPONENT)),
        );
    }

    /// Returns the surplus Pods of a node: all except the oldest. With a surge, the oldest new Pod is kept as well. The
    /// new Pod replaces the old one once it is available, or immediately if the old Pod is not ready.
    fn surplus<'a>(&self, alive: &[&'a Arc<Object>]) -> Vec<&'a Arc<Object>> {
        if self.surge == 0 || alive.len() < 2 {
            return alive.iter().skip(1).copied().collect();
        }
        let (new, old): (Vec<&Arc<Object>>, Vec<&Arc<Object>>) = alive.iter().copied().partition(|it| self.is_new(it));
        let mut surplus: Vec<&Arc<Object>> = new.iter().skip(1).chain(old.iter().skip(1)).copied().collect();
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (!is_ready(old) || self.is_available(new))
        {
            surplus.push(old);
        }
        surplus
    }
}

/// Resolves `maxSurge` of a DaemonSet with Pods on `total` nodes.
fn surge(set: &Object, total: usize) -> i64 {
    let strategy = Cursor::root(set).map_or_empty("spec.updateStrategy");
    let rolling = Cursor::root(strategy).map_or_empty("rollingUpdate");
    scaled(rolling.get("maxSurge"), i64::try_from(total).unwrap_or(i64::MAX), true)
}

/// Creates missing Pods, and deletes surplus and ended ones (Go's `podsShouldBeOnNode`).
fn place(update: &Update<'_>, hosts: &[Host<'_>], by_node: &ByNode<'_>, failed: &mut FailedPods, plan: &mut Plan) {
    for host in hosts {
        let pods = by_node.get(host.node.name()).map_or(&[] as &[_], Vec::as_slice);
        let present: Vec<&Arc<Object>> = pods.iter().copied().filter(|it| !it.is_terminating()).collect();
        if !host.may_stay {
            present.iter().for_each(|it| update.delete(it, plan));
            continue;
        }
        let (ended, alive): (Vec<&Arc<Object>>, Vec<&Arc<Object>>) =
            present.into_iter().partition(|it| is_finished(it));
        for pod in ended {
            end(update, pod, host.node.name(), failed, plan);
        }
        update.surplus(&alive).iter().for_each(|it| update.delete(it, plan));
        // Without a surge, a terminating Pod must be removed before it is replaced.
        let is_free = pods.is_empty() || (update.surge > 0 && alive.is_empty());
        if host.is_wanted && is_free {
            update.create(host.node.name(), plan);
        }
    }
    // The Pods of a deleted Node are deleted by the garbage collector of Pods, unless they were never scheduled.
    let names: BTreeSet<&str> = hosts.iter().map(|it| it.node.name()).collect();
    let lost = by_node.iter().filter(|(node, _)| !names.contains(node.as_str()));
    let lost = lost
        .flat_map(|(_, pods)| pods)
        .filter(|it| !is_scheduled(it) && !it.is_terminating());
    lost.for_each(|it| update.delete(it, plan));
}

/// Deletes a Pod that has ended, and writes an Event. Failed Pods are deleted with a backoff for each node.
fn end(update: &Update<'_>, pod: &Object, node: &str, failed: &mut FailedPods, plan: &mut Plan) {
    let about = (Resource::DaemonSet, update.set);
    let named = format!("{}/{}", pod.namespace(), pod.name());
    if phase(pod) == "Succeeded" {
        let message = format!("Found succeeded daemon pod {named} on node {node}, will try to delete it");
        plan.note(about, COMPONENT, "SucceededDaemonPod", message);
        return update.delete(pod, plan);
    }
    let generation = Cursor::root(update.set)
        .integer("status.observedGeneration")
        .unwrap_or(0);
    if let Some(at) = failed.wait(generation, node, update.sees.now) {
        return plan.look_again(at);
    }
    let message = format!("Found failed daemon pod {named} on node {node}, will try to kill it");
    plan.warn(about, COMPONENT, "FailedDaemonPod", message);
    update.delete(pod, plan);
}

/// Restricts a Pod to a single node (Go's `ReplaceDaemonSetPodNodeNameNodeAffinity`).
fn pin(pod: &mut Value, node: &str) {
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    let required = &mut pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    *required = json!({"nodeSelectorTerms": [{"matchFields": fields}]});
}

/// Replaces Pods of older revisions, up to `maxUnavailable` at a time.
fn roll(update: &Update<'_>, wanted: &[&Arc<Object>], by_node: &ByNode<'_>, plan: &mut Plan) {
    let set = update.set;
    let strategy = Cursor::root(set).map_or_empty("spec.updateStrategy");
    if Cursor::root(strategy).text("type") == "OnDelete" {
        return;
    }
    let rolling = Cursor::root(strategy).map_or_empty("rollingUpdate");
    let total = i64::try_from(wanted.len()).unwrap_or(i64::MAX);
    let most = scaled(rolling.get("maxUnavailable"), total, true).max(1);
    let mut missing = 0;
    let mut old = Vec::new();
    for node in wanted {
        let pod = by_node
            .get(node.name())
            .and_then(|pods| pods.iter().find(|it| !it.is_terminating()));
        match pod {
            None => missing += 1,
            Some(pod) => {
                let is_healthy = update.is_available(pod);
                missing += i64::from(!is_healthy);
                if !update.is_new(pod) && !is_finished(pod) {
                    old.push((is_healthy, *pod));
                }
            }
        }
    }
    // Unavailable Pods are replaced first.
    old.sort_by_key(|(is_healthy, _)| *is_healthy);
    for (is_healthy, pod) in old {
        if is_healthy && missing >= most {
            return;
        }
        missing += i64::from(is_healthy);
        update.delete(pod, plan);
    }
}

/// Creates new Pods in addition to old ones: on at most `maxSurge` nodes at a time, and immediately on nodes with an
/// unavailable Pod. [`Update::surplus`] then deletes the old ones.
fn roll_by_surge(update: &Update<'_>, wanted: &[&Arc<Object>], by_node: &ByNode<'_>, plan: &mut Plan) {
    if Cursor::root(update.set).text("spec.updateStrategy.type") == "OnDelete" {
        return;
    }
    let (mut surging, mut free, mut candidates) = (0, Vec::new(), Vec::new());
    for node in wanted {
        let pods = by_node.get(node.name()).map_or(&[] as &[_], Vec::as_slice);
        let alive = || pods.iter().filter(|it| !it.is_terminating() && !is_finished(it));
        let new = alive().find(|it| update.is_new(it));
        match (new, alive().find(|it| !update.is_new(it))) {
            (_, None) => {}
            (None, Some(old)) if update.is_available(old) => candidates.push(node.name()),
            (None, Some(_)) => free.push(node.name()),
            (Some(new), Some(_)) => surging += i64::from(!update.is_available(new)),
        }
    }
    let left = usize::try_from(update.surge - surging).unwrap_or(0);
    for node in free.into_iter().chain(candidates.into_iter().take(left)) {
        update.create(node, plan);
    }
}

fn write_status(update: &Update<'_>, hosts: &[Host<'_>], by_node: &ByNode<'_>, plan: &mut Plan) {
    let set = update.set;
    let (mut wanted, mut misplaced, mut counts) = (0_usize, 0_usize, [0_usize; 4]);
    for host in hosts {
        let pod = by_node.get(host.node.name()).and_then(|pods| pods.first());
        if !host.is_wanted {
            misplaced += usize::from(pod.is_some());
            continue;
        }
        wanted += 1;
        let Some(pod) = pod else { continue };
        counts[0] += 1;
        counts[1] += usize::from(is_ready(pod));
        counts[2] += usize::from(update.is_available(pod));
        counts[3] += usize::from(update.is_new(pod));
        if let Some(at) = available_at(pod, update.minimum).filter(|at| *at > update.sees.now) {
            plan.look_again(at);
        }
    }
    let [scheduled, ready, available, updated] = counts;
    let mut next = status(set).clone();
    for (field, count) in [
        ("currentNumberScheduled", scheduled),
        ("numberMisscheduled", misplaced),
        ("desiredNumberScheduled", wanted),
        ("numberReady", ready),
    ] {
        next.insert(field.into(), count.into());
    }
    for (field, count) in [
        ("updatedNumberScheduled", updated),
        ("numberAvailable", available),
        ("numberUnavailable", wanted - available),
    ] {
        match count {
            0 => next.remove(field),
            count => next.insert(field.into(), count.into()),
        };
    }
    next.insert("observedGeneration".into(), generation(set).into());
    plan.status(Resource::DaemonSet, set, next);
}
