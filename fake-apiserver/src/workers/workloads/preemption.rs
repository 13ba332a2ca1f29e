//! Preemption: a Pod that does not fit on any node replaces Pods with a lower priority (`DefaultPreemption` of the
//! scheduler). The removal of a Pod may violate a PodDisruptionBudget; such Pods are only removed if others do not
//! suffice. Pods of lower priority leave room for a Pod that waits until its victims are gone.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::cluster::{Cluster, selects};
use super::fit::{Amounts, Load, lacking, requests};
use super::placement::Placement;
use super::plan::{Plan, Write};
use super::pods::{condition, generation, is_active, is_finished, nomination, spec, status, time};
use super::ports;
use super::resource::{Resource, Target};
use super::sees::{Sees, conditions, put_condition, selector_of};
use super::volume_binding;
use crate::api::json::{Value, json};
use crate::api::object::Object;
use crate::api::selector::LabelSelector;
use crate::registry::types::cursor::Cursor;

const COMPONENT: &str = "default-scheduler";

/// Reason why a Pod with the policy `Never` does not preempt others.
pub(crate) const NEVER: &str = "not eligible due to preemptionPolicy=Never.";

/// Reason for a node on which all Pods have the same or a higher priority.
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

/// Reason and name of the condition of a Pod that is deleted by preemption.
const PREEMPTED: (&str, &str) = ("DisruptionTarget", "PreemptionByScheduler");

/// The result of an attempt to preempt other Pods.
pub(crate) enum Preemption {
    /// The Pod will be scheduled to this node after its victims are gone.
    Nominates(String),
    /// The Pod must not preempt others now, for this reason.
    NotEligible(&'static str),
    /// No node has suitable victims. Contains the reasons of each node.
    NotHelpful(Vec<String>),
}

/// Returns `true` if a Pod never preempts others.
pub(crate) fn is_never(pod: &Object) -> bool {
    Cursor::root(pod).text("spec.preemptionPolicy") == "Never"
}

/// Pods that wait until their victims are gone, by the node to which they are nominated.
pub(crate) struct Nominated<'a>(BTreeMap<&'a str, Vec<&'a Arc<Object>>>);

impl<'a> Nominated<'a> {
    /// Returns the nominated Pods for which another Pod must leave room: Pods of the same or a higher priority
    /// (`addGENominatedPods`).
    pub(crate) fn before(pod: &Object, cluster: &'a Cluster) -> Self {
        let mut nominated: BTreeMap<&str, Vec<&Arc<Object>>> = BTreeMap::new();
        for other in cluster.nominated() {
            let is_other = other.uid() != pod.uid() && is_active(other);
            if is_other && priority(other) >= priority(pod) {
                nominated.entry(nomination(other)).or_default().push(other);
            }
        }
        Self(nominated)
    }

    /// Returns the Pods that are nominated to a node.
    pub(crate) fn on(&self, node: &str) -> impl Iterator<Item = &'a Arc<Object>> {
        self.0.get(node).into_iter().flatten().copied()
    }

    /// Returns the load of a node with the nominated Pods; `None` if no Pod is nominated to the node.
    pub(crate) fn load(&self, node: &str, load: Option<&Load>) -> Option<Load> {
        let pods = self.0.get(node)?;
        let mut sum = load.cloned().unwrap_or_default();
        pods.iter().for_each(|it| sum.add(it));
        Some(sum)
    }
}

/// Plans the preemption on one of `nodes`, on which the Pod may fit if other Pods are removed.
pub(crate) fn preempt(pod: &Object, nodes: &[&Arc<Object>], sees: &Sees<'_>, plan: &mut Plan) -> Preemption {
    if is_never(pod) {
        return Preemption::NotEligible(NEVER);
    }
    let mut pods: BTreeMap<&str, Vec<&Arc<Object>>> = BTreeMap::new();
    for it in sees.cluster.all(Resource::Pod) {
        pods.entry(Cursor::root(it).text("spec.nodeName")).or_default().push(it);
    }
    let on = |node: &str| pods.get(node).map_or(&[] as &[_], Vec::as_slice);
    let nominated = nomination(pod);
    let leaves = |it: &&Arc<Object>| is_preempted(it) && priority(it) < priority(pod);
    if nodes.iter().any(|it| it.name() == nominated) && on(nominated).iter().any(leaves) {
        return Preemption::NotEligible("not eligible due to a terminating pod on the nominated node.");
    }
    let mut search = Search::of(pod, sees);
    let (mut choices, mut refusals) = (Vec::new(), Vec::new());
    for node in nodes {
        match search.victims(node, on(node.name())) {
            Ok(found) => choices.push((*node, found)),
            Err(reasons) => refusals.extend(reasons),
        }
    }
    let best = choices.into_iter().min_by_key(|(node, (victims, violations))| {
        // The order of `pickOneNodeForPreemption`. The first victim has the highest priority, and among the victims
        // with this priority, it has started first.
        let first = victims.first();
        let sum: i64 = victims.iter().map(|it| priority(it) + i64::from(i32::MAX) + 1).sum();
        (
            *violations,
            first.map(|it| priority(it)),
            sum,
            victims.len(),
            first.map(|it| Reverse(started(it))),
            node.name().to_owned(),
        )
    });
    let Some((node, (victims, _))) = best else {
        return Preemption::NotHelpful(refusals);
    };
    let displaced = sees.cluster.nominated();
    for it in displaced.filter(|it| nomination(it) == node.name() && priority(it) < priority(pod)) {
        plan.merge_status(Resource::Pod, it, no_nomination());
    }
    for victim in victims {
        plan_eviction(pod, victim, node.name(), sees, plan);
    }
    Preemption::Nominates(node.name().to_owned())
}

/// Returns the patch that removes the nomination of a Pod.
pub(crate) fn no_nomination() -> Value {
    json!({"status": {"nominatedNodeName": null}})
}

/// Returns `true` if a Pod is being deleted because of preemption.
fn is_preempted(pod: &Object) -> bool {
    let (kind, reason) = PREEMPTED;
    pod.is_terminating() && condition(pod, kind).is_some_and(|it| Cursor::root(it).text("reason") == reason)
}

/// A PodDisruptionBudget that selects Pods.
struct Budget<'a> {
    object: &'a Object,
    selector: LabelSelector,
    allowed: i64,
}

/// Returns the PodDisruptionBudgets with a selector. For preemption, an empty selector selects nothing.
fn budgets(cluster: &Cluster) -> Vec<Budget<'_>> {
    let budgets = cluster.all(Resource::PodDisruptionBudget).filter_map(|object| {
        Some(Budget {
            object,
            selector: selector_of(spec(object), "selector").filter(|it| !it.is_empty())?,
            allowed: Cursor::root(object).integer("status.disruptionsAllowed").unwrap_or(0),
        })
    });
    budgets.collect()
}

/// Counts a removal of a Pod in its budgets. `allowed` contains the number of further disruptions that each budget
/// allows. Returns `true` if the removal violates a budget.
fn is_violation(pod: &Object, budgets: &[Budget<'_>], allowed: &mut [i64]) -> bool {
    let mut is_violation = false;
    if pod.labels().next().is_none() {
        return is_violation;
    }
    for (budget, allowed) in budgets.iter().zip(allowed) {
        let is_evicted = || {
            let evicted = Cursor::root(budget.object).map_or_empty("status.disruptedPods");
            evicted.contains_key(pod.name())
        };
        let is_selected = budget.object.namespace() == pod.namespace() && selects(&budget.selector, pod);
        if is_selected && !is_evicted() {
            *allowed -= 1;
            is_violation |= *allowed < 0;
        }
    }
    is_violation
}

/// The Pods to remove from a node, the most important one first, and how many of them violate a budget.
type Victims<'a> = (Vec<&'a Arc<Object>>, usize);

/// A search for victims, which is the same for all nodes.
struct Search<'s, 'a> {
    pod: &'s Object,
    sees: &'s Sees<'a>,
    asked: Amounts,
    claims: Vec<&'a Arc<Object>>,
    budgets: Vec<Budget<'a>>,
    reserved: Nominated<'a>,
    placement: Placement<'s>,
}

impl<'s, 'a> Search<'s, 'a> {
    fn of(pod: &'s Object, sees: &'s Sees<'a>) -> Self {
        let nodes: Vec<&Arc<Object>> = sees.cluster.all(Resource::Node).collect();
        Self {
            pod,
            sees,
            asked: requests(pod),
            claims: volume_binding::existing(pod, sees),
            budgets: budgets(sees.cluster),
            reserved: Nominated::before(pod, sees.cluster),
            placement: Placement::of(pod, &nodes, sees),
        }
    }

    /// Returns the Pods to remove from a node. Removes as few Pods as possible, beginning with the least important one,
    /// and Pods that violate a budget last. If the Pod would not fit even without all Pods of lower priority, the
    /// result is an error with the reasons.
    fn victims<'p>(&mut self, node: &Object, on_node: &[&'p Arc<Object>]) -> Result<Victims<'p>, Vec<String>> {
        let there = on_node.iter().copied().filter(|it| !is_finished(it));
        let (mut lower, mut stays): (Vec<&Arc<Object>>, Vec<&Arc<Object>>) =
            there.partition(|it| priority(it) < priority(self.pod));
        if lower.is_empty() {
            return Err(vec![NO_VICTIMS.to_owned()]);
        }
        lower.sort_by_key(|it| importance(it));
        let mut load = self.reserved.load(node.name(), None).unwrap_or_default();
        stays.iter().for_each(|it| load.add(it));
        lower.iter().for_each(|it| self.placement.remove(it, node));
        let unmet = self.unmet(node, &load, &stays);
        if !unmet.is_empty() {
            lower.iter().for_each(|it| self.placement.restore(it, node));
            return Err(unmet);
        }
        let mut allowed: Vec<i64> = self.budgets.iter().map(|it| it.allowed).collect();
        let (violating, others): (Vec<_>, Vec<_>) = lower
            .into_iter()
            .partition(|it| is_violation(it, &self.budgets, &mut allowed));
        let candidates = violating.into_iter().map(|it| (it, 1));
        let candidates = candidates.chain(others.into_iter().map(|it| (it, 0)));
        let (mut victims, mut violations) = (Vec::new(), 0);
        for (candidate, violation) in candidates {
            load.add(candidate);
            stays.push(candidate);
            self.placement.restore(candidate, node);
            if !self.unmet(node, &load, &stays).is_empty() {
                load.remove(candidate);
                stays.pop();
                self.placement.remove(candidate, node);
                victims.push(candidate);
                violations += violation;
            }
        }
        // The placement is used for the next node.
        victims.iter().for_each(|it| self.placement.restore(it, node));
        victims.sort_by_key(|it| importance(it));
        match victims.is_empty() {
            true => Err(Vec::new()),
            false => Ok((victims, violations)),
        }
    }

    /// Returns the reasons why the Pod does not fit on a node if only the Pods in `stays` remain on it. The other Pods
    /// of the node were removed from the placement.
    fn unmet(&self, node: &Object, load: &Load, stays: &[&Arc<Object>]) -> Vec<String> {
        let others = stays.iter().copied().chain(self.reserved.on(node.name()));
        if ports::conflict(self.pod, others) {
            return vec![ports::NO_FREE_PORTS.to_owned()];
        }
        let lacking = lacking(&self.asked, node, Some(load));
        if !lacking.is_empty() {
            return lacking;
        }
        let unusable = volume_binding::refusals(&self.claims, node, self.sees);
        if !unusable.is_empty() {
            return unusable;
        }
        let refused = self.placement.refusal(node).map(|it| it.why.to_owned());
        refused.into_iter().collect()
    }
}

pub(crate) fn priority(pod: &Object) -> i64 {
    Cursor::root(pod).integer("spec.priority").unwrap_or(0)
}

/// Returns the start time of a Pod. A Pod that has not started is younger than all others.
fn started(pod: &Object) -> Timestamp {
    time(Cursor::root(pod).text("status.startTime")).unwrap_or(Timestamp::MAX)
}

/// Returns a key that sorts the most important Pod first (`MoreImportantPod`): by priority, then by age.
fn importance(pod: &Object) -> (Reverse<i64>, Timestamp) {
    (Reverse(priority(pod)), started(pod))
}

fn plan_eviction(pod: &Object, victim: &Object, node: &str, sees: &Sees<'_>, plan: &mut Plan) {
    if victim.is_terminating() {
        return;
    }
    let mut list = conditions(status(victim));
    let (kind, reason) = PREEMPTED;
    let condition = json!({
        "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": sees.stamp(), "reason": reason,
        "message": "default-scheduler: preempting to accommodate a higher priority pod",
        "observedGeneration": generation(victim),
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
