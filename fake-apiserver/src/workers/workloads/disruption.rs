//! PodDisruptionBudgets: computes the number of evictions that they allow.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::cluster::{Cluster, controller_of, selects};
use super::controller::{Changed, WorkloadController};
use super::plan::Plan;
use super::pods::{generation, is_ready, plus, scaled, spec, status, time};
use super::resource::{Resource, key_of};
use super::sees::{Sees, conditions, new_condition, put_condition, selector_of};
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::storage::Key;
use crate::workers::WorkerRow;

const COMPONENT: &str = "disruption-controller";

pub(crate) const ROW: WorkerRow = WorkerRow::workloads(
    "disruption",
    &[WorkloadController {
        concerns,
        ..WorkloadController::new(Resource::PodDisruptionBudget, COMPONENT, sync)
    }],
);

/// Time in seconds after which an eviction is treated as failed if the Pod has not been deleted.
const DELETION_TIMEOUT: i64 = 120;

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
    let (expected, desired) = match wanted(budget, &pods, sees) {
        Ok(numbers) => numbers,
        Err(why) => {
            fail(budget, &why, sees, &mut plan);
            return plan;
        }
    };
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
    put_allowed(budget, &mut next, [word, reason, ""], sees);
    plan.status(Resource::PodDisruptionBudget, budget, next);
    plan
}

/// Sets the condition `DisruptionAllowed`: its status, reason and message.
fn put_allowed(budget: &Object, next: &mut Map, [word, reason, message]: [&str; 3], sees: &Sees<'_>) {
    let mut list = conditions(status(budget));
    let condition = new_condition("DisruptionAllowed", word, reason, message, &sees.stamp());
    put_condition(&mut list, condition);
    for it in list.iter_mut().filter(|it| it["type"] == "DisruptionAllowed") {
        it["observedGeneration"] = generation(budget).into();
        it["message"] = message.into();
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
    put_allowed(budget, &mut next, ["False", "SyncFailed", why], sees);
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

/// Returns `true` if the controller of a Pod belongs to this group. A custom resource may have the kind of a built-in
/// one.
fn has_controller_in(wanted: &str, pod: &Object) -> bool {
    let owners = pod
        .metadata()
        .into_iter()
        .flat_map(|it| Cursor::root(it).maps("ownerReferences"));
    let mut controllers = owners.filter(|it| Cursor::root(it).flag("controller") == Some(true));
    controllers.any(|it| group(Cursor::root(it).text("apiVersion")) == wanted)
}

/// Returns the group of an `apiVersion`; empty for the core group.
fn group(version: &str) -> &str {
    version.split_once('/').map_or("", |it| it.0)
}

/// Returns the total replicas of the Deployments, ReplicaSets, ReplicationControllers and StatefulSets that control the
/// Pods. Pods without a controller, or with a controller of a kind that workers do not read, are not counted. Fails for
/// a controller that cannot be scaled or does not exist (Go's `getExpectedScale`).
fn expected(pods: &[&Object], sees: &Sees<'_>) -> Result<i64, String> {
    let mut sizes: BTreeMap<String, i64> = BTreeMap::new();
    for pod in pods {
        let Some((kind, name, uid)) = controller_of(pod) else {
            continue;
        };
        let Some(resource) = Resource::of_kind(kind).filter(|it| has_controller_in(group(it.api_version()), pod))
        else {
            continue;
        };
        let scalable = [
            Resource::Deployment,
            Resource::ReplicaSet,
            Resource::ReplicationController,
            Resource::StatefulSet,
        ];
        if !scalable.contains(&resource) {
            return Err(format!(
                "{} does not implement the scale subresource",
                resource.plural()
            ));
        }
        let found = size_of(resource, pod.namespace(), name, uid, sees);
        let (uid, size) = found.ok_or_else(|| format!("found no controllers for pod {:?}", pod.name()))?;
        sizes.insert(uid, size);
    }
    Ok(sizes.values().sum())
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
        }
    }
    left
}
