//! Computes the quota usage of an object, and determines whether a ResourceQuota applies to it.

use std::collections::BTreeMap;

use super::classes::class_of;
use crate::api::object::Object;
use crate::registry::kinds::pod::pod_resources::{is_pod_level, quality_of_service, requested};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::quantity::Quantity;

/// Suffix of the names of device counts, after the name of the DeviceClass.
const DEVICES: &str = ".deviceclass.resource.k8s.io/devices";
/// Number of devices that are counted for a request for all devices: the maximum number in an allocation.
const DEVICES_MAX: i64 = 32;

/// Amounts of resources, by their names in quotas.
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// Parses the amounts in `hard` or `used`.
pub(super) fn amounts(map: &Cursor<'_>) -> Amounts {
    let amounts = map.entries("");
    amounts
        .filter_map(|(name, it)| Some((name.to_owned(), Quantity::parse(it.as_text()).ok()?)))
        .collect()
}

/// Returns the name of an object count, such as `count/deployments.apps`.
fn count_name(group: &str, resource: &str) -> String {
    match group {
        "" => format!("count/{resource}"),
        group => format!("count/{resource}.{group}"),
    }
}

/// Returns `true` if the quota resource `name` counts objects of this kind.
pub(super) fn is_about(name: &str, group: &str, resource: &str) -> bool {
    if name == count_name(group, resource) {
        return true;
    }
    match (group, resource) {
        ("", "pods") => {
            matches!(
                name,
                "pods"
                    | "cpu"
                    | "memory"
                    | "ephemeral-storage"
                    | "requests.cpu"
                    | "requests.memory"
                    | "requests.ephemeral-storage"
                    | "limits.cpu"
                    | "limits.memory"
                    | "limits.ephemeral-storage"
            ) || name.starts_with("hugepages-")
                || name.starts_with("requests.hugepages-")
                || is_extended(name)
        }
        ("", "services") => matches!(name, "services" | "services.nodeports" | "services.loadbalancers"),
        ("", "persistentvolumeclaims") => {
            matches!(name, "persistentvolumeclaims" | "requests.storage")
                || name.ends_with(".storageclass.storage.k8s.io/requests.storage")
                || name.ends_with(".storageclass.storage.k8s.io/persistentvolumeclaims")
        }
        ("resource.k8s.io", "resourceclaims") => name.ends_with(DEVICES),
        ("", "configmaps" | "secrets" | "resourcequotas" | "replicationcontrollers") => name == resource,
        _ => false,
    }
}

/// Returns `true` for the requests of an extended resource, such as `requests.nvidia.com/gpu`. Quotas do not support
/// the limits of extended resources.
fn is_extended(name: &str) -> bool {
    name.strip_prefix("requests.").is_some_and(|rest| rest.contains('/'))
}

/// Returns the amounts of `names` that an object uses.
pub(super) fn usage<'a>(
    names: impl IntoIterator<Item = &'a String>,
    group: &str,
    resource: &str,
    object: &Object,
) -> Amounts {
    let object = Cursor::root(object);
    let spec = &object.at("spec");
    let ended = resource == "pods" && matches!(object.text("status.phase"), "Failed" | "Succeeded");
    let mut used = Amounts::new();
    for name in names.into_iter().filter(|name| is_about(name, group, resource)) {
        let amount = if name.starts_with("count/") {
            Some(Quantity::from_int(1))
        } else if ended {
            None
        } else {
            match resource {
                "pods" => of_pod(name, spec),
                "services" => of_service(name, spec),
                "persistentvolumeclaims" => of_claim(name, &object),
                "resourceclaims" if group == "resource.k8s.io" => of_device_claim(name, spec),
                _ => Some(Quantity::from_int(1)),
            }
        };
        used.extend(amount.map(|it| (name.clone(), it)));
    }
    used
}

/// Returns the amount that a Pod uses of a resource of a quota.
pub(super) fn of_pod(name: &str, spec: &Cursor<'_>) -> Option<Quantity> {
    if name == "pods" {
        return Some(Quantity::from_int(1));
    }
    let (which, resource) = match name.split_once('.') {
        Some(("requests", resource)) => ("requests", resource),
        Some(("limits", resource)) => ("limits", resource),
        _ => ("requests", name),
    };
    let own = spec.at("resources");
    let own = own.map(which).and_then(|it| it.get(resource)?.as_str());
    let own = own.and_then(|it| Quantity::parse(it).ok());
    let amount = own.or_else(|| requested(spec, which, resource).map(|(amount, _)| amount));
    let overhead = spec.map("overhead").and_then(|it| it.get(resource)?.as_str());
    let is_limit = which == "limits";
    match (amount, overhead.and_then(|it| Quantity::parse(it).ok())) {
        (Some(amount), Some(overhead)) if !is_limit || amount.signum() > 0 => Some(amount.add(&overhead)),
        // A missing limit is infinite.
        (amount, Some(_)) if is_limit => amount,
        (amount, overhead) => amount.or(overhead),
    }
}

fn of_service(name: &str, spec: &Cursor<'_>) -> Option<Quantity> {
    let ports = i64::try_from(spec.list("ports").len()).unwrap_or(i64::MAX);
    let kind = spec.text("type");
    let count = match (name, kind) {
        ("services", _) | ("services.loadbalancers", "LoadBalancer") => 1,
        ("services.nodeports", "NodePort") => ports,
        ("services.nodeports", "LoadBalancer") => {
            let allocates = spec.flag("allocateLoadBalancerNodePorts") != Some(false);
            let set = spec
                .items("ports")
                .filter(|it| it.integer("nodePort").is_some_and(|it| it != 0));
            if allocates {
                ports
            } else {
                i64::try_from(set.count()).unwrap_or(i64::MAX)
            }
        }
        _ => 0,
    };
    (count > 0).then(|| Quantity::from_int(count))
}

fn of_claim(name: &str, claim: &Cursor<'_>) -> Option<Quantity> {
    let name = match name.split_once(".storageclass.storage.k8s.io/") {
        Some((class, rest)) if class == class_of(claim) => rest,
        Some(_) => return None,
        None => name,
    };
    if name == "persistentvolumeclaims" {
        return Some(Quantity::from_int(1));
    }
    let amount = |path: &str| Quantity::parse(claim.text(path)).ok();
    let requested = amount("spec.resources.requests.storage");
    let size = requested.max(amount("status.allocatedResources.storage"))?;
    // Rounds up to whole bytes.
    let bytes = size.value();
    Some(if size == Quantity::from_int(bytes) {
        size
    } else {
        Quantity::from_int(bytes)
    })
}

/// Returns the number of devices of a class that a ResourceClaim may use (`resource_claims.go`).
fn of_device_claim(name: &str, spec: &Cursor<'_>) -> Option<Quantity> {
    let class = name.strip_suffix(DEVICES)?;
    let count = |request: &Cursor<'_>| match request.text("deviceClassName") == class {
        false => 0,
        true if request.text("allocationMode") == "All" => DEVICES_MAX,
        true => request.integer("count").unwrap_or(0),
    };
    let of_request = |request: Cursor<'_>| {
        let alternatives = request.items("firstAvailable").map(|it| count(&it));
        alternatives.max().unwrap_or_else(|| {
            // Before v1beta2, the fields are in the request itself.
            let exactly = request.present("exactly");
            exactly.as_ref().map_or_else(|| count(&request), count)
        })
    };
    let requests = spec.items("devices.requests");
    let total = requests.map(of_request).fold(0, i64::saturating_add);
    (total > 0).then(|| Quantity::from_int(total))
}

/// Returns `true` if an object matches a quota's scopes. Scopes apply to Pods only, except scopes for
/// VolumeAttributesClasses, which apply to claims.
pub(super) fn in_scope(quota: &Object, resource: &str, object: &Object) -> bool {
    let quota = Cursor::root(quota);
    let scopes = quota.texts("spec.scopes");
    let mut all = scopes.map(|scope| (scope, "Exists", Vec::new())).collect::<Vec<_>>();
    for expression in quota.items("spec.scopeSelector.matchExpressions") {
        let values = expression.texts("values").collect();
        all.push((expression.text("scopeName"), expression.text("operator"), values));
    }
    let object = Cursor::root(object);
    let spec = &object.at("spec");
    all.iter().all(|(scope, operator, values)| match (*scope, resource) {
        ("Terminating", "pods") => spec.get("activeDeadlineSeconds").is_some(),
        ("NotTerminating", "pods") => spec.get("activeDeadlineSeconds").is_none(),
        ("BestEffort", "pods") => quality_of_service(spec) == "BestEffort",
        ("NotBestEffort", "pods") => quality_of_service(spec) != "BestEffort",
        ("PriorityClass", "pods") => selects(spec.text("priorityClassName"), operator, values),
        ("CrossNamespacePodAffinity", "pods") => crosses_namespaces(spec),
        ("VolumeAttributesClass", "persistentvolumeclaims") => {
            let classes = [
                spec.text("volumeAttributesClassName"),
                object.text("status.currentVolumeAttributesClassName"),
                object.text("status.modifyVolumeStatus.targetVolumeAttributesClassName"),
            ];
            let mut named = classes.iter().filter(|it| !it.is_empty()).peekable();
            match named.peek() {
                None => selects("", operator, values),
                Some(_) => named.any(|class| selects(class, operator, values)),
            }
        }
        _ => false,
    })
}

fn selects(value: &str, operator: &str, values: &[&str]) -> bool {
    match operator {
        "In" => values.contains(&value),
        "NotIn" => !values.contains(&value),
        "DoesNotExist" => value.is_empty(),
        _ => !value.is_empty(),
    }
}

fn crosses_namespaces(spec: &Cursor<'_>) -> bool {
    let crosses = |term: &Cursor<'_>| !term.list("namespaces").is_empty() || term.get("namespaceSelector").is_some();
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let required = format!("affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = format!("affinity.{kind}.preferredDuringSchedulingIgnoredDuringExecution");
        let weighted = |it: &Cursor<'_>| crosses(&it.at("podAffinityTerm"));
        spec.items(&required).any(|it| crosses(&it)) || spec.items(&preferred).any(|it| weighted(&it))
    })
}

/// Lists, for an error message, the compute resources that a quota requires but containers do not set; `None` if all
/// are set, or if the Pod has pod-level resources (`podEvaluator.Constraints`).
pub(super) fn missing<'a>(names: impl IntoIterator<Item = &'a String>, pod: &Object) -> Option<String> {
    let pod = Cursor::root(pod);
    let mut pod_level = ["spec.resources.requests", "spec.resources.limits"].into_iter();
    if pod_level.any(|list| pod.at(list).entries("").any(|(name, _)| is_pod_level(name))) {
        return None;
    }
    let mut lacking: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in names {
        let (which, resource) = match name.split_once('.') {
            Some(("requests", resource)) => ("requests", resource),
            Some(("limits", resource)) => ("limits", resource),
            _ => ("requests", name.as_str()),
        };
        if !matches!(resource, "cpu" | "memory") {
            continue;
        }
        let is_set = |container: &Cursor<'_>| {
            let resources = container.at("resources");
            resources.map(which).is_some_and(|it| it.contains_key(resource))
        };
        for container in pod.items("spec.containers").chain(pod.items("spec.initContainers")) {
            if !is_set(&container) {
                lacking.entry(name).or_default().push(container.text("name"));
            }
        }
    }
    if lacking.is_empty() {
        return None;
    }
    let texts = lacking.into_iter().map(|(name, mut containers)| {
        containers.sort_unstable();
        format!("{name} for: {}", containers.join(","))
    });
    Some(format!("must specify {}", texts.collect::<Vec<_>>().join("; ")))
}
