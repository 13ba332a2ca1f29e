//! Usage of a ResourceQuota by an object, and the quotas that count it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::api::object::Object;
use crate::registry::kinds::pod::pod_resources::{quality_of_service, requested};
use crate::registry::types::access::{at, list, objects, text};
use crate::registry::types::cursor::Cursor;
use crate::registry::types::quantity::Quantity;

/// Amounts by the names quotas have for them.
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// Reads `hard` or `used`.
pub(super) fn amounts(map: Option<&Value>) -> Amounts {
    let map = map.and_then(Value::as_object).into_iter().flatten();
    map.filter_map(|(name, it)| Some((name.clone(), Quantity::parse(it.as_str()?).ok()?)))
        .collect()
}

/// `count/deployments.apps`
fn count_name(group: &str, resource: &str) -> String {
    match group {
        "" => format!("count/{resource}"),
        group => format!("count/{resource}.{group}"),
    }
}

/// Returns `true` if a quota's resource counts objects of this kind.
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
        ("", "configmaps" | "secrets" | "resourcequotas" | "replicationcontrollers") => name == resource,
        _ => false,
    }
}

/// `requests.nvidia.com/gpu`: a resource of a device, of which only requests are counted.
fn is_extended(name: &str) -> bool {
    name.strip_prefix("requests.").is_some_and(|rest| rest.contains('/'))
}

/// Returns the usage of an object, for those of `names` that count it.
pub(super) fn usage<'a>(
    names: impl IntoIterator<Item = &'a String>,
    group: &str,
    resource: &str,
    object: &Object,
) -> Amounts {
    let empty = Map::new();
    let spec = at(object, "spec").and_then(Value::as_object).unwrap_or(&empty);
    let ended = resource == "pods" && matches!(text(object, "status.phase"), "Failed" | "Succeeded");
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
                "persistentvolumeclaims" => of_claim(name, spec),
                _ => Some(Quantity::from_int(1)),
            }
        };
        used.extend(amount.map(|it| (name.clone(), it)));
    }
    used
}

fn of_pod(name: &str, spec: &Map<String, Value>) -> Option<Quantity> {
    if name == "pods" {
        return Some(Quantity::from_int(1));
    }
    let (which, resource) = match name.split_once('.') {
        Some(("requests", resource)) => ("requests", resource),
        Some(("limits", resource)) => ("limits", resource),
        _ => ("requests", name),
    };
    let own = spec
        .get("resources")
        .and_then(|it| it.get(which)?.get(resource)?.as_str());
    let own = own.and_then(|it| Quantity::parse(it).ok());
    let amount = own.or_else(|| requested(&Cursor::root(spec), which, resource).map(|(amount, _)| amount));
    let overhead = at(spec, "overhead").and_then(|it| it.get(resource)?.as_str());
    match (amount, overhead.and_then(|it| Quantity::parse(it).ok())) {
        (Some(amount), Some(overhead)) => Some(amount.add(&overhead)),
        (amount, overhead) => amount.or(overhead),
    }
}

fn of_service(name: &str, spec: &Map<String, Value>) -> Option<Quantity> {
    let ports = i64::try_from(list(spec, "ports").len()).unwrap_or(i64::MAX);
    let kind = text(spec, "type");
    let count = match (name, kind) {
        ("services", _) | ("services.loadbalancers", "LoadBalancer") => 1,
        ("services.nodeports", "NodePort") => ports,
        ("services.nodeports", "LoadBalancer") => {
            let allocates = at(spec, "allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
            let set = objects(spec, "ports").filter(|(_, it)| at(it, "nodePort").is_some_and(|it| it != 0));
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

fn of_claim(name: &str, spec: &Map<String, Value>) -> Option<Quantity> {
    let name = match name.split_once(".storageclass.storage.k8s.io/") {
        Some((class, rest)) if class == text(spec, "storageClassName") => rest,
        Some(_) => return None,
        None => name,
    };
    match name {
        "persistentvolumeclaims" => Some(Quantity::from_int(1)),
        _ => {
            let asked = at(spec, "resources.requests").and_then(|it| it.get("storage")?.as_str());
            asked.and_then(|it| Quantity::parse(it).ok())
        }
    }
}

/// Returns `true` if a quota's scopes include an object. A quota with scopes is about Pods, of volumes' classes about
/// claims.
pub(super) fn in_scope(quota: &Object, resource: &str, object: &Object) -> bool {
    let scopes = list(quota, "spec.scopes").iter().filter_map(Value::as_str);
    let mut all = scopes.map(|scope| (scope, "Exists", Vec::new())).collect::<Vec<_>>();
    for (_, expression) in objects(quota, "spec.scopeSelector.matchExpressions") {
        let values = list(expression, "values").iter().filter_map(Value::as_str).collect();
        all.push((text(expression, "scopeName"), text(expression, "operator"), values));
    }
    let empty = Map::new();
    let spec = at(object, "spec").and_then(Value::as_object).unwrap_or(&empty);
    all.iter().all(|(scope, operator, values)| match (*scope, resource) {
        ("Terminating", "pods") => at(spec, "activeDeadlineSeconds").is_some(),
        ("NotTerminating", "pods") => at(spec, "activeDeadlineSeconds").is_none(),
        ("BestEffort", "pods") => quality_of_service(&Cursor::root(spec)) == "BestEffort",
        ("NotBestEffort", "pods") => quality_of_service(&Cursor::root(spec)) != "BestEffort",
        ("PriorityClass", "pods") => selects(text(spec, "priorityClassName"), operator, values),
        ("CrossNamespacePodAffinity", "pods") => crosses_namespaces(spec),
        ("VolumeAttributesClass", "persistentvolumeclaims") => {
            selects(text(spec, "volumeAttributesClassName"), operator, values)
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

fn crosses_namespaces(spec: &Map<String, Value>) -> bool {
    let crosses =
        |term: &Map<String, Value>| !list(term, "namespaces").is_empty() || at(term, "namespaceSelector").is_some();
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let required = format!("affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = format!("affinity.{kind}.preferredDuringSchedulingIgnoredDuringExecution");
        let weighted = |it: &Map<String, Value>| {
            at(it, "podAffinityTerm")
                .and_then(Value::as_object)
                .is_some_and(crosses)
        };
        objects(spec, &required).any(|(_, it)| crosses(it)) || objects(spec, &preferred).any(|(_, it)| weighted(it))
    })
}

/// Returns the compute resources that a quota demands and a container leaves unset.
pub(super) fn missing<'a>(names: impl IntoIterator<Item = &'a String>, pod: &Object) -> Option<String> {
    let mut lacking: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in names {
        let (which, resource) = match name.split_once('.') {
            Some(("requests", resource)) => ("requests", resource),
            Some(("limits", resource)) => ("limits", resource),
            _ => ("requests", name.as_str()),
        };
        if !matches!(resource, "cpu" | "memory" | "ephemeral-storage") {
            continue;
        }
        let says = |resources: Option<&Value>| {
            resources.is_some_and(|it| it.get(which).is_some_and(|it| it.get(resource).is_some()))
        };
        if says(at(pod, "spec.resources")) {
            continue;
        }
        for path in ["spec.containers", "spec.initContainers"] {
            for (_, container) in objects(pod, path) {
                if !says(container.get("resources")) {
                    lacking.entry(name).or_default().push(text(container, "name"));
                }
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
