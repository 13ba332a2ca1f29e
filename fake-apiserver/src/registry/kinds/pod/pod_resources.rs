//! Pod-level resources, and the QoS class of a pod.

use std::collections::BTreeMap;

use super::amount::read;
use crate::api::json::{Map, Value};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{ensure_object, object_mut};
use crate::registry::types::quantity::Quantity;

/// Returns `true` if the resource is supported at the pod level.
pub(crate) fn is_pod_level(resource: &str) -> bool {
    resource == "cpu" || resource == "memory" || resource.starts_with("hugepages-")
}

/// Fills in missing pod-level requests from the requests of the containers, or otherwise from the pod-level limits;
/// huge pages only from the limits. Does nothing without pod-level limits.
pub(super) fn default_pod_resources(spec: &mut Map) {
    let whole = Cursor::root(spec);
    let Some(limits) = whole.map("resources.limits").filter(|limits| !limits.is_empty()) else {
        return;
    };
    let requests = whole.map("resources.requests");
    let is_requested = |resource: &str| requests.is_some_and(|requests| requests.contains_key(resource));
    let containers_ask = |resource| requested(&whole, "requests", resource).map(|(_, written)| Value::from(written));
    let mut missing: Vec<(String, Value)> = Vec::new();
    for (resource, limit) in limits {
        if is_pod_level(resource) && !is_requested(resource) {
            let asked = containers_ask(resource).filter(|_| !resource.starts_with("hugepages-"));
            missing.push((resource.to_string(), asked.unwrap_or_else(|| limit.clone())));
        }
    }
    for resource in ["cpu", "memory"] {
        let known = limits.contains_key(resource) || is_requested(resource);
        if let (false, Some(asked)) = (known, containers_ask(resource)) {
            missing.push((resource.to_owned(), asked));
        }
    }
    if !missing.is_empty()
        && let Some(own) = object_mut(spec, "resources")
    {
        ensure_object(own, "requests").extend(missing);
    }
}

/// Returns the total of the requests or limits (`which`) of all containers for a resource: the sum over the containers
/// that run at the same time, or the amount while an init container runs if it is higher. The string is the amount in
/// its printed form.
pub(crate) fn requested(spec: &Cursor<'_>, which: &str, resource: &str) -> Option<(Quantity, String)> {
    let asked = |container: &Cursor<'_>| -> Option<(Quantity, String)> {
        let asked = container.at("resources");
        let written = asked.map(which)?.get(resource)?.as_str()?;
        Some((read(written)?, written.to_owned()))
    };
    let mut total: Option<(Quantity, String)> = None;
    let mut sidecars: Option<(Quantity, String)> = None;
    let mut peak: Option<(Quantity, String)> = None;
    for own in spec.items("containers").filter_map(|it| asked(&it)) {
        total = Some(sum(total.take(), own));
    }
    for container in spec.items("initContainers") {
        let Some(own) = asked(&container) else { continue };
        let together = sum(sidecars.clone(), own.clone());
        if container.text("restartPolicy") == "Always" {
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

/// Returns the value of `status.qosClass` (rule C5).
pub(crate) fn quality_of_service(spec: &Cursor<'_>) -> &'static str {
    let mut compute = Compute::default();
    match spec.map("resources") {
        Some(own) => compute.add(&Cursor::root(own)),
        None => {
            for container in ["containers", "initContainers"]
                .iter()
                .flat_map(|list| spec.items(list))
            {
                compute.add(&container.at("resources"));
            }
        }
    }
    let Compute {
        requests,
        limits,
        lacks_limits,
    } = compute;
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    let equal =
        requests.len() == limits.len() && requests.iter().all(|(name, amount)| limits.get(name) == Some(amount));
    if !lacks_limits && equal {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Total CPU and memory of a pod, for its QoS class.
#[derive(Default)]
struct Compute {
    requests: BTreeMap<&'static str, Quantity>,
    limits: BTreeMap<&'static str, Quantity>,
    /// Set if a container does not limit both CPU and memory.
    lacks_limits: bool,
}

impl Compute {
    fn add(&mut self, resources: &Cursor<'_>) {
        add_compute(&resources.at("requests"), &mut self.requests);
        self.lacks_limits |= add_compute(&resources.at("limits"), &mut self.limits) < 2;
    }
}

/// Adds the amounts of CPU and memory to the totals. Returns how many of the two are set; zero is treated as unset.
fn add_compute(from: &Cursor<'_>, to: &mut BTreeMap<&'static str, Quantity>) -> usize {
    let mut named = 0;
    for name in ["cpu", "memory"] {
        if let Some(amount) = read(from.text(name)).filter(|amount| amount.signum() > 0) {
            named += 1;
            to.entry(name)
                .and_modify(|sum| *sum = sum.add(&amount))
                .or_insert(amount);
        }
    }
    named
}
