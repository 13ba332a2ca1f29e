//! Evaluates an autoscaler: finds its target, and determines the recommended number of replicas and the conditions.

use std::sync::Arc;

use super::limits::Limited;
use super::measure::{Measured, measure};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::options::PatchKind;
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::kubelet::Nodes;
use crate::workers::workloads::plan::{Plan, Write};
use crate::workers::workloads::pods::{generation, plus, status};
use crate::workers::workloads::resource::{Resource, Target};
use crate::workers::workloads::sees::{Sees, conditions, new_condition, put_condition};

pub(super) const COMPONENT: &str = "horizontal-pod-autoscaler";

/// Seconds between two evaluations of an autoscaler.
const PERIOD: i64 = 15;

/// An autoscaler during one sync.
struct Look<'a> {
    autoscaler: &'a Object,
    sees: &'a Sees<'a>,
    conditions: Vec<Value>,
}

impl Look<'_> {
    fn condition(&mut self, kind: &str, is_true: bool, reason: &str, message: &str) {
        let status = if is_true { "True" } else { "False" };
        let condition = new_condition(kind, status, reason, message, &self.sees.stamp());
        put_condition(&mut self.conditions, condition);
    }
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
    plan.look_again(next);
    let mut look = Look {
        autoscaler,
        sees,
        conditions: conditions(status(autoscaler)),
    };
    let mut written = status(autoscaler).clone();
    let target = match target(autoscaler, sees) {
        Ok(target) => target,
        Err(why) => {
            let message = format!("the HPA controller was unable to get the target's current scale: {why}");
            look.condition("AbleToScale", false, "FailedGetScale", &message);
            plan.warn(
                (Resource::HorizontalPodAutoscaler, autoscaler),
                COMPONENT,
                "FailedGetScale",
                why,
            );
            finish(look, written, &mut plan);
            return plan;
        }
    };
    let current = Cursor::root(target.1).integer("spec.replicas").unwrap_or(1);
    written.insert("currentReplicas".into(), current.into());
    written.insert("observedGeneration".into(), generation(autoscaler).into());
    let message = "the HPA controller was able to get the target's current scale";
    look.condition("AbleToScale", true, "SucceededGetScale", message);
    if let Some((desired, reason)) = desired(&mut look, &target, current, nodes, &mut written, &mut plan) {
        written.insert("desiredReplicas".into(), desired.into());
        if desired != current {
            rescale(&mut look, &target, desired, &reason, &mut written, &mut plan);
            let history = nodes.autoscalers.entry(autoscaler.uid().to_owned()).or_default();
            history.scaled(sees.now, desired - current);
        }
    }
    finish(look, written, &mut plan);
    plan
}

fn finish(look: Look<'_>, mut written: Map, plan: &mut Plan) {
    written.insert("conditions".into(), look.conditions.into());
    if !written.contains_key("desiredReplicas") {
        written.insert("desiredReplicas".into(), 0.into());
    }
    plan.status(Resource::HorizontalPodAutoscaler, look.autoscaler, written);
}

/// Returns the workload that an autoscaler scales.
fn target<'a>(autoscaler: &Object, sees: &Sees<'a>) -> Result<(Resource, &'a Arc<Object>), String> {
    let reference = Cursor::root(autoscaler);
    let (kind, name) = (
        reference.text("spec.scaleTargetRef.kind"),
        reference.text("spec.scaleTargetRef.name"),
    );
    let scalable = [
        Resource::Deployment,
        Resource::ReplicaSet,
        Resource::ReplicationController,
        Resource::StatefulSet,
    ];
    let resource = scalable.into_iter().find(|it| it.kind() == kind);
    let resource = resource.ok_or_else(|| format!("no matches for kind \"{kind}\" that can be scaled here"))?;
    let found = sees.cluster.find(resource, autoscaler.namespace(), name);
    found
        .map(|it| (resource, it))
        .ok_or_else(|| format!("{} \"{name}\" not found", resource.plural()))
}

/// Returns the number of replicas that the target should have, and the reason; `None` if it cannot be determined.
fn desired(
    look: &mut Look<'_>,
    target: &(Resource, &Arc<Object>),
    current: i64,
    nodes: &mut Nodes,
    written: &mut Map,
    plan: &mut Plan,
) -> Option<(i64, String)> {
    let autoscaler = look.autoscaler;
    let least = Cursor::root(autoscaler).integer("spec.minReplicas").unwrap_or(1);
    let most = Cursor::root(autoscaler).integer("spec.maxReplicas").unwrap_or(1);
    if current == 0 && least != 0 {
        let message = "scaling is disabled since the replica count of the target is zero";
        look.condition("ScalingActive", false, "ScalingDisabled", message);
        return Some((0, String::new()));
    }
    if current > most {
        return Some((most, "Current number of replicas above Spec.MaxReplicas".to_owned()));
    }
    if current < least {
        return Some((least, "Current number of replicas below Spec.MinReplicas".to_owned()));
    }
    let (measured, failures) = measure(autoscaler, target, current, look.sees, &nodes.kubelet);
    // Of equal recommendations, the first one counts.
    let best = measured.iter().rev().max_by_key(|it| it.replicas);
    written.insert(
        "currentMetrics".into(),
        measured.iter().map(|it| it.status.clone()).collect(),
    );
    let best: &Measured = match (best, failures.first()) {
        (Some(best), None) => best,
        // If a metric failed, the number is not decreased, because that metric might have recommended a higher number.
        (Some(best), Some(_)) if best.replicas >= current => best,
        (_, Some(failure)) => {
            let message = format!("the HPA was unable to compute the replica count: {}", failure.message);
            look.condition("ScalingActive", false, failure.reason, &message);
            let about = (Resource::HorizontalPodAutoscaler, autoscaler);
            plan.warn(about, COMPONENT, failure.reason, failure.message.clone());
            return None;
        }
        (None, None) => return Some((current, String::new())),
    };
    let message = format!(
        "the HPA was able to successfully calculate a replica count from {}",
        best.name
    );
    look.condition("ScalingActive", true, "ValidMetricFound", &message);
    let history = nodes.autoscalers.entry(autoscaler.uid().to_owned()).or_default();
    let limited = Limited::of(autoscaler, history, current, best.replicas, look.sees.now);
    let (is_able, able_reason, able_message) = limited.able;
    look.condition("AbleToScale", is_able, able_reason, able_message);
    let (is_limited, reason, message) = limited.limit;
    look.condition("ScalingLimited", is_limited, reason, message);
    let reason = match limited.desired > current {
        true => format!("{} above target", best.name),
        false => "All metrics below target".to_owned(),
    };
    Some((limited.desired, reason))
}

fn rescale(
    look: &mut Look<'_>,
    target: &(Resource, &Arc<Object>),
    desired: i64,
    reason: &str,
    written: &mut Map,
    plan: &mut Plan,
) {
    plan.writes.push(Write::Patch {
        at: Target::of(target.0, target.1),
        subresource: "scale".to_owned(),
        kind: PatchKind::Merge,
        patch: json!({"spec": {"replicas": desired}}),
    });
    let message = format!("the HPA controller was able to update the target scale to {desired}");
    look.condition("AbleToScale", true, "SucceededRescale", &message);
    written.insert("lastScaleTime".into(), look.sees.stamp().into());
    let about = (Resource::HorizontalPodAutoscaler, look.autoscaler);
    let message = format!("New size: {desired}; reason: {reason}");
    plan.note(about, COMPONENT, "SuccessfulRescale", message);
}
