//! Resources of the whole pod, and the quality of service that all of them give.

use std::collections::BTreeMap;

use super::amount::Amount;
use crate::registry::kinds::view::{JsonMap, items, object, object_made, object_mut, object_or_empty, text};

/// What `resources.requests` or `.limits` of a pod spec's own `resources` may name.
pub(super) fn is_pod_level(resource: &str) -> bool {
    resource == "cpu" || resource == "memory" || resource.starts_with("hugepages-")
}

/// Fills in the requests of the whole pod from what its containers ask for, and else from its limits.
pub(super) fn default_pod_resources(spec: &mut JsonMap) {
    let Some(limits) = object(spec, "resources").and_then(|own| object(own, "limits")) else {
        return;
    };
    if limits.is_empty() {
        return;
    }
    let requests = object(spec, "resources").map(|own| object_or_empty(own, "requests"));
    let mut missing: Vec<(String, serde_json::Value)> = Vec::new();
    for (resource, limit) in limits {
        if is_pod_level(resource) && requests.is_none_or(|requests| !requests.contains_key(resource)) {
            let asked = containers_ask(spec, resource).filter(|_| !resource.starts_with("hugepages-"));
            missing.push((resource.clone(), asked.unwrap_or_else(|| limit.clone())));
        }
    }
    for resource in ["cpu", "memory"] {
        let known = limits.contains_key(resource) || requests.is_some_and(|requests| requests.contains_key(resource));
        if let (false, Some(asked)) = (known, containers_ask(spec, resource)) {
            missing.push((resource.to_owned(), asked));
        }
    }
    if !missing.is_empty()
        && let Some(own) = object_mut(spec, "resources")
        && let Some(requests) = object_made(own, "requests")
    {
        requests.extend(missing);
    }
}

/// What the containers together request: the sum of those that run, or more where one init container asks for more.
fn containers_ask(spec: &JsonMap, resource: &str) -> Option<serde_json::Value> {
    let asked = |container: &JsonMap| -> Option<(Amount, String)> {
        let request = object(container, "resources").and_then(|own| object(own, "requests"))?;
        let written = request.get(resource)?.as_str()?;
        Some((Amount::parse(written)?, written.to_owned()))
    };
    let mut total: Option<(Amount, String)> = None;
    let mut add = |amount: (Amount, String), total: &mut Option<(Amount, String)>| {
        *total = Some(match total.take() {
            None => amount,
            Some((sum, written)) => {
                let sum = sum.plus(amount.0);
                (sum, sum.written_like(&written))
            }
        });
    };
    let mut peak: Option<(Amount, String)> = None;
    let mut sidecars: Option<(Amount, String)> = None;
    for (_, container) in items(spec, "initContainers") {
        let Some(own) = asked(container) else { continue };
        let mut with_sidecars = sidecars.clone();
        add(own.clone(), &mut with_sidecars);
        if text(container, "restartPolicy") == "Always" {
            sidecars = with_sidecars.clone();
            add(own, &mut total);
        }
        if with_sidecars.as_ref().map(|it| it.0) > peak.as_ref().map(|it| it.0) {
            peak = with_sidecars;
        }
    }
    for (_, container) in items(spec, "containers") {
        if let Some(own) = asked(container) {
            add(own, &mut total);
        }
    }
    let most = if peak.as_ref().map(|it| it.0) > total.as_ref().map(|it| it.0) {
        peak
    } else {
        total
    };
    most.map(|(_, written)| serde_json::Value::String(written))
}

/// `status.qosClass` of a pod (rule C5).
pub(crate) fn quality_of_service(spec: &JsonMap) -> &'static str {
    let mut requests: BTreeMap<&str, Amount> = BTreeMap::new();
    let mut limits: BTreeMap<&str, Amount> = BTreeMap::new();
    let mut guaranteed = true;
    let own = object(spec, "resources");
    let containers = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| items(spec, list))
        .map(|(_, container)| object_or_empty(container, "resources"));
    let all: Vec<&JsonMap> = match own {
        Some(own) => vec![own],
        None => containers.collect(),
    };
    for resources in all {
        add_compute(object_or_empty(resources, "requests"), &mut requests);
        let limited = add_compute(object_or_empty(resources, "limits"), &mut limits);
        guaranteed &= limited == 2;
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    let equal =
        requests.len() == limits.len() && requests.iter().all(|(name, amount)| limits.get(name) == Some(amount));
    if guaranteed && equal { "Guaranteed" } else { "Burstable" }
}

/// Adds what is asked of CPU and memory; how many of the two were named. Zero does not count.
fn add_compute<'a>(from: &'a JsonMap, to: &mut BTreeMap<&'a str, Amount>) -> usize {
    let mut named = 0;
    for (name, value) in from {
        let amount = value.as_str().and_then(Amount::parse).unwrap_or(Amount::ZERO);
        if (name == "cpu" || name == "memory") && amount > Amount::ZERO {
            named += 1;
            let sum = to.entry(name).or_insert(Amount::ZERO);
            *sum = sum.plus(amount);
        }
    }
    named
}
