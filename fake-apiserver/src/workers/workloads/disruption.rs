//! PodDisruptionBudgets: computes the number of evictions that they allow.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::cluster::{Cluster, controller_of, controller_reference_of, selects};
use super::controller::{Changed, WorkloadController};
use super::go_text::go_selector;
use super::plan::Plan;
use super::pods::{condition, generation, is_finished, is_ready, plus, scaled, spec, status, time};
use super::resource::{Resource, key_of};
use super::scale::{SCALABLE, ScaleError, group, scale_of};
use super::sees::{Sees, conditions, new_condition, put_condition, selector_of};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;
use crate::workers::WorkerRow;

const COMPONENT: &str = "disruption-controller";

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "disruption",
    &[
        WorkloadController {
            concerns,
            ..WorkloadController::new(Resource::PodDisruptionBudget, COMPONENT, sync)
        },
        WorkloadController {
            is_relevant: |change| {
                change
                    .new
                    .is_some_and(|pod| condition(pod, "DisruptionTarget").is_some())
            },
            ..WorkloadController::new(Resource::Pod, COMPONENT, reset_stale)
        },
    ],
);

/// Time in seconds after which an eviction is treated as failed if the Pod has not been deleted.
const DELETION_TIMEOUT: i64 = 120;

/// Time, in seconds, after which the condition `DisruptionTarget` is reset if the Pod was not deleted.
const STALE_TIMEOUT: i64 = 120;

/// Resets the condition `DisruptionTarget` of a Pod that was not deleted (Go's `syncStalePodDisruption`).
fn reset_stale(pod: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    let Some(target) = condition(pod, "DisruptionTarget") else {
        return plan;
    };
    let target = Cursor::root(target);
    let is_set = target.text("status") == "True" && target.text("reason") != "TerminationByKubelet";
    if !is_set || pod.is_terminating() || is_finished(pod) {
        return plan;
    }
    let since = time(target.text("lastTransitionTime"));
    if let Some(at) = since.map(|it| plus(it, STALE_TIMEOUT)).filter(|at| *at > sees.now) {
        plan.look_again(at);
        return plan;
    }
    let mut next = status(pod).clone();
    let mut list = conditions(&next);
    for it in list.iter_mut().filter(|it| it["type"] == "DisruptionTarget") {
        *it = json!({
            "type": "DisruptionTarget", "status": "False", "lastProbeTime": null, "lastTransitionTime": sees.stamp(),
            "observedGeneration": generation(pod),
        });
    }
    next.insert("conditions".into(), list.into());
    plan.status(Resource::Pod, pod, next);
    plan
}

/// Enqueues the budgets that select a Pod.
fn concerns(change: &Changed<'_>, cluster: &Cluster, add: &mut dyn FnMut(Key)) {
    if change.resource != Resource::Pod {
        return;
    }
    for budget in cluster.within(Resource::PodDisruptionBudget, change.key.namespace()) {
        let selector = selector_of(spec(budget), "selector");
        if selector.is_some_and(|it| change.versions().any(|pod| selects(&it, pod))) {
            add(key_of(budget));
        }
    }
}

/// Plans the work for a PodDisruptionBudget.
pub(crate) fn sync(budget: &Object, sees: &Sees<'_>) -> Plan {
    let mut plan = Plan::default();
    // A budget without a selector selects no Pods.
    let pods = selector_of(spec(budget), "selector").map_or_else(Vec::new, |it| {
        sees.cluster.selected(Resource::Pod, budget.namespace(), &it)
    });
    let pods: Vec<&Object> = pods.into_iter().map(|it| &**it).collect();
    let about = (Resource::PodDisruptionBudget, budget);
    if pods.is_empty() {
        plan.note(about, COMPONENT, "NoPods", "No matching pods found".to_owned());
    }
    let (expected, desired) = match wanted(budget, &pods, sees) {
        Ok(numbers) => numbers,
        Err(why) => {
            fail(budget, &why, sees, &mut plan);
            return plan;
        }
    };
    if counts_controllers(budget) && pods.iter().any(|it| controller_of(it).is_none()) {
        let selector = go_selector(Cursor::root(budget).map("spec.selector"));
        let message = format!(
            "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, \
             the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account \
             for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
        );
        plan.warn(about, COMPONENT, "UnmanagedPods", message);
    }
    let disrupted = still_disrupted(budget, &pods, sees, &mut plan);
    let healthy = pods
        .iter()
        .filter(|it| !it.is_terminating() && !disrupted.contains_key(it.name()) && is_ready(it))
        .count();
    let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    let mut next = Map::new();
    next.insert("observedGeneration".into(), generation(budget).into());
    if !disrupted.is_empty() {
        let map: Map = disrupted.into_iter().collect();
        next.insert("disruptedPods".into(), map.into());
    }
    for (field, number) in [
        ("disruptionsAllowed", allowed),
        ("currentHealthy", healthy),
        ("desiredHealthy", desired),
        ("expectedPods", expected),
    ] {
        next.insert(field.into(), number.into());
    }
    let (word, reason) = if allowed > 0 {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    put_allowed(budget, &mut next, [word, reason, ""], generation(budget), sees);
    plan.status(Resource::PodDisruptionBudget, budget, next);
    plan
}

/// Sets the condition `DisruptionAllowed`: its status, reason and message, and the observed generation.
fn put_allowed(budget: &Object, next: &mut Map, [word, reason, message]: [&str; 3], observed: i64, sees: &Sees<'_>) {
    let mut list = conditions(status(budget));
    let condition = new_condition("DisruptionAllowed", word, reason, message, &sees.stamp());
    put_condition(&mut list, condition);
    let allowed = list.iter_mut().filter_map(Value::as_object_mut);
    for it in allowed.filter(|it| Cursor::root(it).text("type") == "DisruptionAllowed") {
        match observed {
            0 => drop(it.remove("observedGeneration")),
            observed => drop(it.insert("observedGeneration".into(), observed.into())),
        }
        it.insert("message".into(), message.into());
    }
    next.insert("conditions".into(), list.into());
}

/// Allows no evictions, because the number of expected Pods is unknown (Go's `failSafe`).
fn fail(budget: &Object, why: &str, sees: &Sees<'_>, plan: &mut Plan) {
    let mut next = status(budget).clone();
    next.insert("disruptionsAllowed".into(), 0.into());
    for field in ["currentHealthy", "desiredHealthy", "expectedPods"] {
        next.entry(field).or_insert_with(|| 0.into());
    }
    // Only a successful sync changes the observed generation.
    let observed = Cursor::root(&next).integer("observedGeneration").unwrap_or(0);
    put_allowed(budget, &mut next, ["False", "SyncFailed", why], observed, sees);
    plan.status(Resource::PodDisruptionBudget, budget, next);
    let message = format!("Failed to calculate the number of expected pods: {why}");
    let about = (Resource::PodDisruptionBudget, budget);
    plan.warn(about, COMPONENT, "CalculateExpectedPodCountFailed", message);
}

/// Returns the number of Pods that should exist, and the number that must stay healthy.
fn wanted(budget: &Object, pods: &[&Object], sees: &Sees<'_>) -> Result<(i64, i64), String> {
    let count = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    let rules = spec(budget);
    if Cursor::root(rules).is_set("maxUnavailable") {
        let expected = expected(pods, sees)?;
        let most = scaled(rules.get("maxUnavailable"), expected, true);
        return Ok((expected, (expected - most).max(0)));
    }
    Ok(match rules.get("minAvailable") {
        Some(Value::String(percentage)) => {
            let expected = expected(pods, sees)?;
            (expected, scaled(Some(&percentage.as_str().into()), expected, true))
        }
        Some(number) => (count, number.as_i64().unwrap_or(0)),
        None => (0, 0),
    })
}

/// Returns `true` if the number of expected Pods is determined by the controllers of the Pods.
fn counts_controllers(budget: &Object) -> bool {
    let rules = spec(budget);
    Cursor::root(rules).is_set("maxUnavailable") || matches!(rules.get("minAvailable"), Some(Value::String(_)))
}

/// Returns the `apiVersion` of the controller of a Pod; empty if the Pod does not have a controller.
fn version_of_controller(pod: &Object) -> &str {
    controller_reference_of(pod).map_or("", |it| Cursor::root(it).text("apiVersion"))
}

/// Returns the total replicas of the controllers of the Pods. Pods without a controller are not counted. Fails for a
/// controller that cannot be scaled or does not exist (Go's `getExpectedScale`).
fn expected(pods: &[&Object], sees: &Sees<'_>) -> Result<i64, String> {
    let mut sizes: BTreeMap<String, i64> = BTreeMap::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for pod in pods {
        let Some((kind, name, uid)) = controller_of(pod).filter(|(.., uid)| known.insert(uid)) else {
            continue;
        };
        let version = version_of_controller(pod);
        let builtin = SCALABLE
            .into_iter()
            .find(|it| it.kind() == kind && group(it.api_version()) == group(version));
        let found = match builtin {
            Some(resource) => size_of(resource, pod.namespace(), name, uid, sees),
            None => size_of_other(version, kind, &Key::new(pod.namespace(), name), uid, sees)?,
        };
        let (uid, size) = found.ok_or_else(|| format!("found no controllers for pod {:?}", pod.name()))?;
        sizes.insert(uid, size);
    }
    Ok(sizes.values().sum())
}

/// Returns the uid and the size of an object of another resource; `None` if it does not exist (Go's
/// `getScaleController`).
fn size_of_other(
    version: &str,
    kind: &str,
    key: &Key,
    uid: &str,
    sees: &Sees<'_>,
) -> Result<Option<(String, i64)>, String> {
    match scale_of(version, kind, key, sees) {
        Ok(scale) => Ok((scale.uid == uid).then_some((scale.uid, scale.replicas))),
        Err(ScaleError::Missing { .. }) => Ok(None),
        Err(ScaleError::Unsupported(resource)) => Err(format!("{resource} does not implement the scale subresource")),
        Err(ScaleError::UnknownKind { kind, version }) => {
            Err(format!("no matches for kind {kind:?} in version {version:?}"))
        }
        Err(ScaleError::Invalid(why)) => Err(why),
    }
}

fn size_of(resource: Resource, namespace: &str, name: &str, uid: &str, sees: &Sees<'_>) -> Option<(String, i64)> {
    let set = sees
        .cluster
        .find(resource, namespace, name)
        .filter(|it| it.uid() == uid)?;
    let size = |set: &Object| {
        (
            set.uid().to_owned(),
            Cursor::root(set).integer("spec.replicas").unwrap_or(1),
        )
    };
    match (resource, controller_of(set)) {
        (Resource::ReplicaSet, Some(("Deployment", owner, owner_uid))) => {
            let deployment = sees.cluster.find(Resource::Deployment, namespace, owner);
            Some(
                deployment
                    .filter(|it| it.uid() == owner_uid)
                    .map_or_else(|| size(set), |it| size(it)),
            )
        }
        _ => Some(size(set)),
    }
}

/// Returns the evictions in progress, by the name of the Pod.
fn still_disrupted(budget: &Object, pods: &[&Object], sees: &Sees<'_>, plan: &mut Plan) -> BTreeMap<String, Value> {
    let known = Cursor::root(budget).map_or_empty("status.disruptedPods");
    let mut left = BTreeMap::new();
    for pod in pods.iter().filter(|it| !it.is_terminating()) {
        let Some(at) = known.get(pod.name()) else { continue };
        let since: Option<Timestamp> = at.as_str().and_then(time);
        let ends = since.map_or(sees.now, |it| plus(it, DELETION_TIMEOUT));
        if ends > sees.now {
            plan.look_again(ends);
            left.insert(pod.name().to_owned(), at.clone());
        } else {
            // Kubernetes writes the namespace twice.
            let namespace = budget.namespace();
            let message = format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
            plan.warn((Resource::Pod, pod), COMPONENT, "NotDeleted", message);
        }
    }
    left
}
