//! Evaluates an autoscaler: finds its target, and determines the recommended number of replicas and the conditions.

use std::sync::Arc;

use super::limits::Limited;
use super::measure::{Measured, Pods, measure};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::selector::LabelSelector;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;
use crate::workers::workloads::cluster::selects;
use crate::workers::workloads::kubelet::Nodes;
use crate::workers::workloads::plan::{Plan, Rescale, Write};
use crate::workers::workloads::pods::{plus, status};
use crate::workers::workloads::resource::{Resource, Target};
use crate::workers::workloads::scale::{Scale, scale_of};
use crate::workers::workloads::sees::{Sees, conditions};

pub(super) const COMPONENT: &str = "horizontal-pod-autoscaler";

/// Seconds between two evaluations of an autoscaler.
const PERIOD: i64 = 15;

/// An autoscaler during one sync.
struct Look<'a> {
    autoscaler: &'a Object,
    sees: &'a Sees<'a>,
    conditions: Vec<Value>,
    /// The new value of `status.currentMetrics`; empty if no metric was needed.
    metrics: Vec<Value>,
}

impl Look<'_> {
    /// Sets a condition in place (Go's `setConditionInList`).
    fn condition(&mut self, kind: &str, is_true: bool, reason: &str, message: &str) {
        let status = if is_true { "True" } else { "False" };
        let known = self.conditions.iter_mut().find(|it| it["type"] == kind);
        let condition = match known {
            Some(known) => known,
            None => {
                self.conditions.push(json!({"type": kind}));
                let last = self.conditions.len() - 1;
                &mut self.conditions[last]
            }
        };
        if condition["status"] != status {
            condition["lastTransitionTime"] = self.sees.stamp().into();
        }
        condition["status"] = status.into();
        condition["reason"] = reason.into();
        condition["message"] = message.into();
    }

    fn about(&self) -> (Resource, &Object) {
        (Resource::HorizontalPodAutoscaler, self.autoscaler)
    }

    /// Returns the status with these numbers of replicas.
    fn status(&self, current: i64, desired: i64) -> Map {
        let mut next = Map::new();
        if let Some(last) = status(self.autoscaler).get("lastScaleTime") {
            next.insert("lastScaleTime".into(), last.clone());
        }
        next.insert("currentReplicas".into(), current.into());
        next.insert("desiredReplicas".into(), desired.into());
        if !self.metrics.is_empty() {
            next.insert("currentMetrics".into(), self.metrics.clone().into());
        }
        next.insert("conditions".into(), self.conditions.clone().into());
        next
    }
}

/// The result of an evaluation: a number of replicas, and the reason if it differs from the current one.
enum Desired {
    Replicas(i64, String),
    /// The number cannot be determined, for this reason.
    Unknown(String),
}

/// Plans the work for an autoscaler.
pub(super) fn sync(autoscaler: &Object, sees: &Sees<'_>, nodes: &mut Nodes) -> Plan {
    let mut plan = Plan::default();
    let history = nodes.autoscalers.entry(autoscaler.uid().to_owned()).or_default();
    let due = *history.next.get_or_insert(plus(sees.now, PERIOD));
    if due > sees.now {
        plan.look_again(due);
        return plan;
    }
    let next = plus(sees.now, PERIOD);
    history.next = Some(next);
    history.settle(sees.now, Cursor::root(autoscaler).text("status.lastScaleTime"));
    plan.look_again(next);
    let mut look = Look {
        autoscaler,
        sees,
        conditions: conditions(status(autoscaler)),
        metrics: Vec::new(),
    };
    let scale = match target(autoscaler, sees) {
        Ok(scale) => scale,
        Err(why) => {
            let message = format!("the HPA controller was unable to get the target's current scale: {why}");
            look.condition("AbleToScale", false, "FailedGetScale", &message);
            plan.warn(look.about(), COMPONENT, "FailedGetScale", why);
            let mut next = status(autoscaler).clone();
            next.insert("conditions".into(), look.conditions.into());
            next.entry("desiredReplicas").or_insert_with(|| 0.into());
            plan.status(Resource::HorizontalPodAutoscaler, autoscaler, next);
            return plan;
        }
    };
    history.is_known = true;
    let message = "the HPA controller was able to get the target's current scale";
    look.condition("AbleToScale", true, "SucceededGetScale", message);
    match desired(&mut look, &scale, nodes, &mut plan) {
        Desired::Unknown(why) => {
            let known = Cursor::root(autoscaler).integer("status.desiredReplicas").unwrap_or(0);
            let next = look.status(scale.replicas, known);
            plan.status(Resource::HorizontalPodAutoscaler, autoscaler, next);
            plan.warn(look.about(), COMPONENT, "FailedComputeMetricsReplicas", why);
        }
        Desired::Replicas(desired, _) if desired == scale.replicas => {
            let next = look.status(desired, desired);
            plan.status(Resource::HorizontalPodAutoscaler, autoscaler, next);
        }
        Desired::Replicas(desired, reason) => {
            let history = nodes.autoscalers.entry(autoscaler.uid().to_owned()).or_default();
            history.plan(sees.now, desired - scale.replicas);
            plan.writes.push(rescale(&mut look, scale, desired, &reason));
        }
    }
    plan
}

/// Returns the scale of the target of an autoscaler.
fn target(autoscaler: &Object, sees: &Sees<'_>) -> Result<Scale, String> {
    let reference = Cursor::root(autoscaler);
    let text = |field: &str| reference.text(&format!("spec.scaleTargetRef.{field}")).to_owned();
    let key = Key::new(autoscaler.namespace(), &text("name"));
    scale_of(&text("apiVersion"), &text("kind"), &key, sees).map_err(|error| error.to_string())
}

/// Returns the number of replicas that the target should have.
fn desired(look: &mut Look<'_>, scale: &Scale, nodes: &mut Nodes, plan: &mut Plan) -> Desired {
    let autoscaler = look.autoscaler;
    let current = scale.replicas;
    let least = Cursor::root(autoscaler).integer("spec.minReplicas").unwrap_or(1);
    let most = Cursor::root(autoscaler).integer("spec.maxReplicas").unwrap_or(1);
    if current == 0 && least != 0 {
        let message = "scaling is disabled since the replica count of the target is zero";
        look.condition("ScalingActive", false, "ScalingDisabled", message);
        return Desired::Replicas(0, String::new());
    }
    if current > most {
        return Desired::Replicas(most, "Current number of replicas above Spec.MaxReplicas".to_owned());
    }
    if current < least {
        return Desired::Replicas(least, "Current number of replicas below Spec.MinReplicas".to_owned());
    }
    let selector = match selector(look, scale, nodes, plan) {
        Ok(selector) => selector,
        Err(why) => return Desired::Unknown(why),
    };
    let best = match recommended(look, scale, &selector, nodes, plan) {
        Ok(Some(best)) => best,
        Ok(None) => return Desired::Replicas(current, String::new()),
        Err(why) => return Desired::Unknown(why),
    };
    let history = nodes.autoscalers.entry(autoscaler.uid().to_owned()).or_default();
    let limited = Limited::of(autoscaler, history, current, best.replicas, look.sees.now);
    let (is_able, able_reason, able_message) = limited.able;
    look.condition("AbleToScale", is_able, able_reason, able_message);
    let (is_limited, reason, message) = limited.limit;
    look.condition("ScalingLimited", is_limited, reason, message);
    let reason = match best.replicas.cmp(&current) {
        std::cmp::Ordering::Greater => format!("{} above target", best.name),
        std::cmp::Ordering::Less => "All metrics below target".to_owned(),
        std::cmp::Ordering::Equal => String::new(),
    };
    Desired::Replicas(limited.desired, reason)
}

/// Returns the selector of the target's Pods, unless another autoscaler has Pods in common (Go's
/// `validateAndParseSelector`).
fn selector(look: &mut Look<'_>, scale: &Scale, nodes: &Nodes, plan: &mut Plan) -> Result<LabelSelector, String> {
    let Some(selector) = &scale.selector else {
        let message = "the HPA target's scale is missing a selector";
        look.condition("ScalingActive", false, "InvalidSelector", message);
        let why = "selector is required".to_owned();
        plan.warn(look.about(), COMPONENT, "SelectorRequired", why.clone());
        return Err(why);
    };
    let namespace = look.autoscaler.namespace();
    let pods = look.sees.cluster.selected(Resource::Pod, namespace, selector);
    let is_shared = |other: &&Arc<Object>| {
        if !nodes.autoscalers.get(other.uid()).is_some_and(|it| it.is_known) {
            return false;
        }
        let its_selector = target(other, look.sees).ok().and_then(|it| it.selector);
        its_selector.is_some_and(|it| pods.iter().any(|pod| selects(&it, pod)))
    };
    let all = look.sees.cluster.within(Resource::HorizontalPodAutoscaler, namespace);
    let shared: Vec<String> = all
        .filter(is_shared)
        .map(|it| format!("{{{} {namespace}}}", it.name()))
        .collect();
    if shared.len() > 1 {
        let list = shared.join(" ");
        let why = format!("pods by selector {selector} are controlled by multiple HPAs: [{list}]");
        plan.warn(look.about(), COMPONENT, "AmbiguousSelector", why.clone());
        look.condition("ScalingActive", false, "AmbiguousSelector", &why);
        return Err(why);
    }
    Ok(selector.clone())
}

/// Returns the highest recommendation of the metrics (Go's `computeReplicasForMetrics`). If a metric failed, the number
/// is not decreased, because that metric might have recommended a higher number.
fn recommended(
    look: &mut Look<'_>,
    scale: &Scale,
    selector: &LabelSelector,
    nodes: &Nodes,
    plan: &mut Plan,
) -> Result<Option<Measured>, String> {
    let pods = Pods::of(look.autoscaler, scale, selector, look.sees, &nodes.kubelet);
    let results = measure(look.autoscaler, &pods);
    let total = results.len();
    let (mut measured, mut failures) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(it) => {
                look.metrics.push(it.status.clone());
                measured.push(it);
            }
            Err(failure) => {
                look.metrics.push(json!({"type": ""}));
                plan.warn(look.about(), COMPONENT, failure.reason, failure.message.clone());
                failures.push(failure);
            }
        }
    }
    // Of equal recommendations, the first one counts.
    let best = measured.into_iter().rev().max_by_key(|it| it.replicas);
    let invalid = failures.len();
    let is_lower = best.as_ref().is_none_or(|it| it.replicas < scale.replicas);
    if let Some(first) = failures.first().filter(|_| is_lower) {
        let message = format!("the HPA was unable to compute the replica count: {}", first.message);
        look.condition("ScalingActive", false, first.reason, &message);
        let subject = format!("invalid metrics ({invalid} invalid out of {total})");
        return Err(format!("{subject}, first error is: {}{}", first.prefix, first.message));
    }
    if let Some(best) = &best {
        let name = &best.name;
        let message = format!("the HPA was able to successfully calculate a replica count from {name}");
        look.condition("ScalingActive", true, "ValidMetricFound", &message);
    }
    Ok(best)
}

/// Returns the write that scales the target, with the Event and the status to write after its success or failure.
fn rescale(look: &mut Look<'_>, scale: Scale, desired: i64, reason: &str) -> Write {
    let current = scale.replicas;
    let before = look.conditions.clone();
    let known = Cursor::root(look.autoscaler)
        .integer("status.desiredReplicas")
        .unwrap_or(0);
    let message = "the HPA controller was unable to update the target scale: {}";
    look.condition("AbleToScale", false, "FailedUpdateScale", message);
    let refused = look.status(current, known);
    look.conditions = before;
    let message = format!("the HPA controller was able to update the target scale to {desired}");
    look.condition("AbleToScale", true, "SucceededRescale", &message);
    let mut accepted = look.status(current, desired);
    accepted.insert("lastScaleTime".into(), look.sees.stamp().into());
    let about = look.about();
    let size = format!("New size: {desired}; reason: {reason}");
    let failed = format!("{size}; error: {{}}");
    Write::Scale(Box::new(Rescale {
        storage: scale.storage,
        key: scale.key,
        replicas: desired,
        at: Target::of(about.0, about.1),
        success: (
            Plan::event(about, COMPONENT, false, "SuccessfulRescale", size),
            accepted,
        ),
        failure: (Plan::event(about, COMPONENT, true, "FailedRescale", failed), refused),
    }))
}
