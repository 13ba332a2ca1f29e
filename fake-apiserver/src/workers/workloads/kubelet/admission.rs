//! Admission of Pods by the kubelet of their Node. It refuses Pods that do not fit, such as Pods that were bound
//! without the scheduler.

use crate::api::json::Value;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::quantity::Quantity;
use crate::workers::workloads::fit::{Load, allocatable, exceeds, kubelet_amount, lacking, requests};
use crate::workers::workloads::node_rules::{fits_affinity, tolerates};
use crate::workers::workloads::pods::{is_finished, status};
use crate::workers::workloads::ports::{self, NO_FREE_PORTS};
use crate::workers::workloads::resource::Resource;
use crate::workers::workloads::sees::Sees;

/// Reason and message for refusing a Pod.
pub(super) type Rejection = (String, String);

/// Returns the reason why the kubelet of a Node refuses a Pod. Pods that the kubelet has admitted stay admitted.
pub(super) fn rejection(pod: &Object, load: Option<&Load>, sees: &Sees<'_>) -> Option<Rejection> {
    if is_admitted(pod) || is_finished(pod) || pod.is_terminating() {
        return None;
    }
    let name = Cursor::root(pod).text("spec.nodeName");
    let node = sees.cluster.find(Resource::Node, "", name)?;
    let predicate = |name: &str, why: &str| (name.to_owned(), format!("Predicate {name} failed: {why}"));
    if let Some(rejection) = lack(pod, node, load, sees) {
        return Some(rejection);
    }
    if !fits_affinity(pod, node) {
        return Some(predicate(
            "NodeAffinity",
            "node(s) didn't match Pod's node affinity/selector",
        ));
    }
    let others = sees.cluster.on_node(name).filter(|it| it.uid() != pod.uid());
    if ports::conflict(pod, others.filter(|it| is_admitted(it))) {
        return Some(predicate("NodePorts", NO_FREE_PORTS));
    }
    let mut taints = Cursor::root(node).list("spec.taints").iter();
    let evicts = |taint: &Value| taint["effect"] == "NoExecute" && !tolerates(pod, taint);
    let why = "node(s) had taints that the pod didn't tolerate";
    taints.any(evicts).then(|| predicate("TaintToleration", why))
}

fn is_admitted(pod: &Object) -> bool {
    Cursor::root(status(pod)).is_set("startTime")
}

/// Returns the rejection for the first resource that is insufficient for the Pod in addition to the admitted Pods.
fn lack(pod: &Object, node: &Object, load: Option<&Load>, sees: &Sees<'_>) -> Option<Rejection> {
    // `load` also includes this Pod and Pods that were not admitted yet. If all of them fit, the Pods need not be
    // examined one by one.
    let room = allocatable(node);
    let most = load?;
    let is_full = room.get("pods").is_some_and(|it| Quantity::from_int(count(most)) > *it);
    if room.is_empty() || (!is_full && most.asked().keys().all(|name| !exceeds(most.asked(), &room, name))) {
        return None;
    }
    let mut used = Load::default();
    let others = sees.cluster.on_node(node.name()).filter(|it| it.uid() != pod.uid());
    let admitted = others.filter(|it| is_admitted(it));
    admitted.for_each(|it| used.add(it));
    let asked = requests(pod);
    let why = lacking(&asked, node, Some(&used)).into_iter().next()?;
    let (name, asked, used) = match why.strip_prefix("Insufficient ") {
        Some(name) => (name, kubelet_amount(&asked, name), kubelet_amount(used.asked(), name)),
        None => ("pods", 1, count(&used)),
    };
    let capacity = kubelet_amount(&room, name);
    let message =
        format!("Node didn't have enough resource: {name}, requested: {asked}, used: {used}, capacity: {capacity}");
    Some((format!("OutOf{name}"), message))
}

fn count(load: &Load) -> i64 {
    i64::try_from(load.pods).unwrap_or(i64::MAX)
}
