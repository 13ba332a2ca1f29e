//! DaemonSets: one Pod on each Node that fits.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::controller::WorkloadController;
use super::plan::Plan;
use super::pods::{
    annotation, available_at, from_template, generation, is_available, is_finished, is_ready, label, scaled, spec,
    status,
};
use super::replica_set::{told_of_creation, told_of_deletion};
use super::resource::{Resource, key_of};
use super::revisions;
use super::scheduler::{fits_affinity, tolerates};
use super::sees::{Sees, selector_of};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::workers::WorkerRow;

const COMPONENT: &str = "daemonset-controller";

/// Taints that daemons tolerate and other Pods do not.
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
        place(set, &template, &wanted, &by_node, &mut plan);
        roll(set, revisions::label_of(update), &wanted, &by_node, sees, &mut plan);
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

/// The node a Pod is on, or is meant for.
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

/// The template with what daemons bear, and the labels of their revision.
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

/// Returns `true` if a daemon is wanted on a node; cordoned ones count.
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

/// Makes what is missing, and takes away what is too much or has failed.
fn place(set: &Object, template: &Map, wanted: &[&Arc<Object>], by_node: &ByNode<'_>, plan: &mut Plan) {
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
        for pod in alive.iter().skip(1) {
            delete(pod, plan);
        }
        // A Pod on its way out makes room first.
        if pods.is_empty() {
            let mut pod = from_template(Resource::DaemonSet, set, template);
            pin(&mut pod, node.name());
            plan.create_and_tell(
                Resource::Pod,
                pod,
                Some(told_of_creation(Resource::DaemonSet, set, COMPONENT)),
            );
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

/// Says that a Pod is for one node.
fn pin(pod: &mut Value, node: &str) {
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
    let required = &mut pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    match required["nodeSelectorTerms"].as_array_mut().filter(|it| !it.is_empty()) {
        Some(terms) => terms.iter_mut().for_each(|term| term["matchFields"] = fields.clone()),
        None => *required = json!({"nodeSelectorTerms": [{"matchFields": fields}]}),
    }
}

/// Replaces Pods of older revisions, as many at once as may be missing.
fn roll(set: &Object, hash: &str, wanted: &[&Arc<Object>], by_node: &ByNode<'_>, sees: &Sees<'_>, plan: &mut Plan) {
    let strategy = Cursor::root(set).map_or_empty("spec.updateStrategy");
    if Cursor::root(strategy).text("type") == "OnDelete" {
        return;
    }
    let rolling = Cursor::root(strategy).map_or_empty("rollingUpdate");
    let total = i64::try_from(wanted.len()).unwrap_or(i64::MAX);
    // With a surge none may be missing; a surge itself is not simulated, and one at a time is replaced.
    let most = scaled(rolling.get("maxUnavailable"), total, true).max(1);
    let minimum = Cursor::root(set).integer("spec.minReadySeconds").unwrap_or(0);
    let mut missing = 0;
    let mut old = Vec::new();
    for node in wanted {
        let pod = by_node
            .get(node.name())
            .and_then(|pods| pods.iter().find(|it| !it.is_terminating()));
        match pod {
            None => missing += 1,
            Some(pod) => {
                let is_healthy = is_available(pod, minimum, sees.now);
                missing += i64::from(!is_healthy);
                if label(pod, revisions::HASH_LABEL) != Some(hash) && !is_finished(pod) {
                    old.push((is_healthy, *pod));
                }
            }
        }
    }
    // Pods that are unavailable anyway go first.
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
