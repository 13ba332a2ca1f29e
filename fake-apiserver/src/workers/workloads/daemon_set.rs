//! DaemonSets: maintains one Pod of each DaemonSet on each suitable Node.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::controller::WorkloadController;
use super::node_rules::{fits_affinity, tolerates};
use super::plan::Plan;
use super::pods::{
    annotation, available_at, from_template, generation, is_available, is_finished, is_ready, label, scaled, spec,
    status,
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
            if change.resource == Resource::Node {
                cluster.all(Resource::DaemonSet).for_each(|it| add(key_of(it)));
            }
        },
        ..WorkloadController::new(Resource::DaemonSet, "daemon-set-controller", sync)
    }],
);

/// The Pods of a DaemonSet by node, oldest first.
type ByNode<'a> = BTreeMap<String, Vec<&'a Arc<Object>>>;

/// Plans the work for a DaemonSet.
pub(crate) fn sync(set: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    let Some(selector) = selector_of(spec(set), "selector") else {
        return plan;
    };
    let claimed = sees.claimed(Resource::Pod, (Resource::DaemonSet, set), &selector, &mut plan);
    let known = revisions::revisions_of(Resource::DaemonSet, set, sees, &mut plan);
    let Some(update) = known.update else {
        return plan;
    };
    let mut by_node = ByNode::new();
    for pod in claimed {
        by_node.entry(node_of(pod)).or_default().push(pod);
    }
    for pods in by_node.values_mut() {
        pods.sort_by_key(|pod| (super::pods::created(pod), pod.name().to_owned()));
    }
    let template = daemon_template(set, revisions::label_of(update));
    let shape = Object(template.clone());
    let wanted: Vec<&Arc<Object>> = sees
        .cluster
        .all(Resource::Node)
        .filter(|node| fits(&shape, node))
        .collect();
    if !set.is_terminating() {
        let update = Update {
            set,
            hash: revisions::label_of(update),
            template: &template,
            surge: surge(set, wanted.len()),
            minimum: Cursor::root(set).integer("spec.minReadySeconds").unwrap_or(0),
            sees,
        };
        place(&update, &wanted, &by_node, &mut plan);
        match update.surge {
            0 => roll(&update, &wanted, &by_node, &mut plan),
            _ => roll_by_surge(&update, &wanted, &by_node, &mut plan),
        }
    }
    write_status(set, revisions::label_of(update), &wanted, &by_node, sees, &mut plan);
    let live: Vec<&str> = by_node
        .values()
        .flatten()
        .filter_map(|pod| label(pod, revisions::HASH_LABEL))
        .collect();
    revisions::clean_up(set, &known, &live, &mut plan);
    plan
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
        tolerations.push(json!({"key": key, "operator": "Exists", "effect": effect}));
    }
    template["spec"]["tolerations"] = tolerations.into();
    template.as_object().cloned().unwrap_or_default()
}

/// Returns `true` if the node should run the Pod. Cordoned nodes are not excluded.
fn fits(pod: &Object, node: &Object) -> bool {
    let keeps_out = |taint: &Value| matches!(taint["effect"].as_str(), Some("NoSchedule" | "NoExecute"));
    let taints = spec(node).get("taints").and_then(Value::as_array);
    let bears = taints
        .into_iter()
        .flatten()
        .all(|taint| !keeps_out(taint) || tolerates(pod, taint));
    let named = Cursor::root(pod).text("spec.nodeName");
    bears && fits_affinity(pod, node) && (named.is_empty() || named == node.name())
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

/// Creates missing Pods, and deletes surplus and finished ones.
fn place(update: &Update<'_>, wanted: &[&Arc<Object>], by_node: &ByNode<'_>, plan: &mut Plan) {
    let set = update.set;
    let delete = |pod: &Object, plan: &mut Plan| {
        plan.delete_and_tell(
            Resource::Pod,
            pod,
            Some(told_of_deletion(Resource::DaemonSet, set, COMPONENT)),
        );
    };
    for node in wanted {
        let pods = by_node.get(node.name()).map_or(&[] as &[_], Vec::as_slice);
        let (ended, alive): (Vec<&Arc<Object>>, Vec<&Arc<Object>>) = pods
            .iter()
            .copied()
            .filter(|it| !it.is_terminating())
            .partition(|it| is_finished(it));
        for pod in ended {
            let named = format!("{}/{}", pod.namespace(), pod.name());
            let message = format!(
                "Found failed daemon pod {named} on node {}, will try to kill it",
                node.name()
            );
            plan.warn((Resource::DaemonSet, set), COMPONENT, "FailedDaemonPod", message);
            delete(pod, plan);
        }
        for pod in update.surplus(&alive) {
            delete(pod, plan);
        }
        // A terminating Pod must be removed before it is replaced.
        if pods.is_empty() {
            update.create(node.name(), plan);
        }
    }
    for (node, pods) in by_node {
        if !wanted.iter().any(|it| it.name() == node) {
            for pod in pods.iter().filter(|it| !it.is_terminating()) {
                delete(pod, plan);
            }
        }
    }
}

/// Restricts a Pod to a single node.
fn pin(pod: &mut Value, node: &str) {
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    let required = &mut pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    match required["nodeSelectorTerms"].as_array_mut().filter(|it| !it.is_empty()) {
        Some(terms) => terms.iter_mut().for_each(|term| term["matchFields"] = fields.clone()),
        None => *required = json!({"nodeSelectorTerms": [{"matchFields": fields}]}),
    }
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
        plan.delete_and_tell(
            Resource::Pod,
            pod,
            Some(told_of_deletion(Resource::DaemonSet, set, COMPONENT)),
        );
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

fn write_status(
    set: &Object,
    hash: &str,
    wanted: &[&Arc<Object>],
    by_node: &ByNode<'_>,
    sees: &Sees<'_>,
    plan: &mut Plan,
) {
    let minimum = Cursor::root(set).integer("spec.minReadySeconds").unwrap_or(0);
    let mut counts = [0_usize; 4];
    for node in wanted {
        let Some(pods) = by_node.get(node.name()) else { continue };
        let oldest = pods
            .iter()
            .find(|it| !it.is_terminating() && !is_finished(it))
            .or(pods.first());
        let Some(pod) = oldest else { continue };
        counts[0] += 1;
        counts[1] += usize::from(is_ready(pod));
        counts[2] += usize::from(is_available(pod, minimum, sees.now));
        counts[3] += usize::from(label(pod, revisions::HASH_LABEL) == Some(hash));
        if let Some(at) = available_at(pod, minimum).filter(|at| *at > sees.now) {
            plan.look_again(at);
        }
    }
    let misplaced = by_node
        .keys()
        .filter(|node| !wanted.iter().any(|it| it.name() == **node))
        .count();
    let [scheduled, ready, available, updated] = counts;
    let mut next = status(set).clone();
    for (field, count) in [
        ("currentNumberScheduled", scheduled),
        ("numberMisscheduled", misplaced),
        ("desiredNumberScheduled", wanted.len()),
        ("numberReady", ready),
    ] {
        next.insert(field.into(), count.into());
    }
    for (field, count) in [
        ("updatedNumberScheduled", updated),
        ("numberAvailable", available),
        ("numberUnavailable", wanted.len() - available),
    ] {
        match count {
            0 => next.remove(field),
            count => next.insert(field.into(), count.into()),
        };
    }
    next.insert("observedGeneration".into(), generation(set).into());
    plan.status(Resource::DaemonSet, set, next);
}
