//! Resources of the whole pod, and the quality of service that all of them give.

use std::collections::BTreeMap;

use serde_json::Value;

use super::amount::read;
use crate::registry::types::quantity::Quantity;
use crate::registry::types::view::{JsonMap, items, object, object_made, object_mut, object_or_empty, text};

/// Returns `true` if `resources.requests` or `.limits` of a pod spec's own `resources` may name the resource.
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
    let mut missing: Vec<(String, Value)> = Vec::new();
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

fn containers_ask(spec: &JsonMap, resource: &str) -> Option<Value> {
    requested(spec, "requests", resource).map(|(_, written)| Value::String(written))
}

/// Returns the sum that the containers request, or are limited to: that of the running ones, or more where one init
/// container needs more. The amount, and how it is written.
pub(crate) fn requested(spec: &JsonMap, which: &str, resource: &str) -> Option<(Quantity, String)> {
    let asked = |container: &JsonMap| -> Option<(Quantity, String)> {
        let asked = object(container, "resources").and_then(|own| object(own, which))?;
        let written = asked.get(resource)?.as_str()?;
        Some((read(written)?, written.to_owned()))
    };
    let mut total: Option<(Quantity, String)> = None;
    let mut sidecars: Option<(Quantity, String)> = None;
    let mut peak: Option<(Quantity, String)> = None;
    for (_, container) in items(spec, "containers") {
        if let Some(own) = asked(container) {
            total = Some(sum(total.take(), own));
        }
    }
    for (_, container) in items(spec, "initContainers") {
        let Some(own) = asked(container) else { continue };
        let together = sum(sidecars.clone(), own.clone());
        if text(container, "restartPolicy") == "Always" {
            sidecars = Some(together.clone());
            total = Some(sum(total.take(), own));
        }
        if peak.as_ref().is_none_or(|peak| together.0 > peak.0) {
            peak = Some(together);
        }
    }
    match (total, peak) {
        (Some(total), Some(peak)) => Some(if peak.0 > total.0 { peak } else { total }),
        (total, peak) => total.or(peak),
    }
}

fn sum(so_far: Option<(Quantity, String)>, own: (Quantity, String)) -> (Quantity, String) {
    match so_far {
        None => own,
        Some((amount, _)) => {
            let amount = amount.add(&own.0);
            (amount, amount.to_string())
        }
    }
}

/// `status.qosClass` of a pod (rule C5).
pub(crate) fn quality_of_service(spec: &JsonMap) -> &'static str {
    let mut requests: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut limits: BTreeMap<&str, Quantity> = BTreeMap::new();
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
fn add_compute<'a>(from: &'a JsonMap, to: &mut BTreeMap<&'a str, Quantity>) -> usize {
    let mut named = 0;
    for (name, value) in from {
        let Some(amount) = value.as_str().and_then(read).filter(|amount| amount.signum() > 0) else {
            continue;
        };
        if name == "cpu" || name == "memory" {
            named += 1;
            to.entry(name)
                .and_modify(|sum| *sum = sum.add(&amount))
                .or_insert(amount);
        }
    }
    named
}
