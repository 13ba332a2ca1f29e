//! `LimitRanger`: sets default requests and limits of containers, and checks the bounds of LimitRanges.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::json::{Map, SmolStr, Value};
use crate::api::object::Object;
use crate::registry::kinds::pod::pod_resources::requested;
use crate::registry::reader::Reader;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::edit::{ensure_object, items_mut};
use crate::registry::types::quantity::Quantity;
use crate::storage::KeyRange;

/// Annotation that lists the requests and limits that were filled in.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Returns `true` if there are any LimitRanges.
fn is_used(reader: &Reader) -> bool {
    reader.store.snapshot("limitranges").count(&KeyRange::of(None)) > 0
}

fn limits(reader: &Reader, object: &Object) -> Vec<Object> {
    if !is_used(reader) {
        return Vec::new();
    }
    reader.objects_in("", "limitranges", object.namespace())
}

/// Fills in the defaults of the namespace's LimitRanges. If several have a default for a resource, the first is used.
pub(super) fn set_defaults(reader: &Reader, pod: &mut Object) {
    for range in limits(reader, pod) {
        let mut defaults: BTreeMap<&str, BTreeMap<&str, &Value>> = BTreeMap::new();
        let range = Cursor::root(&range);
        for limit in range.items("spec.limits").filter(|it| it.text("type") == "Container") {
            for (field, target) in [("default", "limits"), ("defaultRequest", "requests")] {
                let values = limit.map(field).into_iter().flatten();
                let target = defaults.entry(target).or_default();
                target.extend(values.map(|(resource, value)| (resource.as_str(), value)));
            }
        }
        let mut said = Vec::new();
        for (path, prefix) in [
            ("spec.containers", "container"),
            ("spec.initContainers", "init container"),
        ] {
            for container in items_mut(pod, path) {
                let name = Cursor::root(container).text("name").to_owned();
                for (field, word) in [("requests", "request"), ("limits", "limit")] {
                    let set = fill(container, field, defaults.get(field));
                    if !set.is_empty() {
                        said.push(format!("{} {word} for {prefix} {name}", set.join(", ")));
                    }
                }
            }
        }
        if !said.is_empty() {
            let text = format!("LimitRanger plugin set: {}", said.join("; "));
            ensure_object(pod.metadata_mut(), "annotations").insert(ANNOTATION.into(), text.into());
        }
    }
}

/// Sets the missing requests or limits of a container, and returns the names of their resources.
fn fill(container: &mut Map, field: &str, defaults: Option<&BTreeMap<&str, &Value>>) -> Vec<String> {
    let Some(defaults) = defaults.filter(|it| !it.is_empty()) else {
        return Vec::new();
    };
    let amounts = ensure_object(ensure_object(container, "resources"), field);
    let mut set = Vec::new();
    for (resource, value) in defaults {
        if !amounts.contains_key(resource) {
            amounts.insert((*resource).into(), (*value).clone());
            set.push((*resource).to_owned());
        }
    }
    set
}

/// Requests and limits of a container, a pod or a claim.
struct Asked {
    requests: BTreeMap<String, Quantity>,
    limits: BTreeMap<String, Quantity>,
}

impl Asked {
    fn of(resources: &Cursor<'_>) -> Self {
        let amounts = |field| {
            let amounts = resources.entries(field);
            amounts
                .filter_map(|(name, it)| Some((name.to_owned(), Quantity::parse(it.as_text()).ok()?)))
                .collect()
        };
        Self {
            requests: amounts("requests"),
            limits: amounts("limits"),
        }
    }

    /// Returns the requests and limits of a Pod, for the resources in `limit`: the Pod's own value, or else the sum
    /// over its containers.
    fn of_pod(spec: &Cursor<'_>, limit: &Cursor<'_>) -> Self {
        let own = Self::of(&spec.at("resources"));
        let names = ["min", "max", "maxLimitRequestRatio"].into_iter();
        let names = names.filter_map(|field| limit.map(field)).flatten();
        let mut asked = Self {
            requests: BTreeMap::new(),
            limits: BTreeMap::new(),
        };
        for (name, _) in names {
            let sum = |which: &str| requested(spec, which, name).map(|(amount, _)| amount);
            if let Some(amount) = own.requests.get(name.as_str()).copied().or_else(|| sum("requests")) {
                asked.requests.insert(name.to_string(), amount);
            }
            if let Some(amount) = own.limits.get(name.as_str()).copied().or_else(|| sum("limits")) {
                asked.limits.insert(name.to_string(), amount);
            }
        }
        asked
    }
}

/// Checks an object against the namespace's LimitRanges.
pub(super) fn check(reader: &Reader, resource: &str, object: &Object) -> Result<(), String> {
    let mut errors: Vec<String> = Vec::new();
    let asking = Cursor::root(object);
    let spec = asking.at("spec");
    for range in limits(reader, object) {
        for limit in Cursor::root(&range).items("spec.limits") {
            match (resource, limit.text("type")) {
                ("pods", "Container") => {
                    for container in ["containers", "initContainers"]
                        .iter()
                        .flat_map(|list| spec.items(list))
                    {
                        let asked = Asked::of(&container.at("resources"));
                        check_all("Container", &limit, &asked, &mut errors);
                    }
                }
                ("pods", "Pod") => check_all("Pod", &limit, &Asked::of_pod(&spec, &limit), &mut errors),
                ("persistentvolumeclaims", "PersistentVolumeClaim") => {
                    check_claim(&limit, &Asked::of(&spec.at("resources")), &mut errors);
                }
                _ => {}
            }
        }
        // Only the violations of the first violated LimitRange are reported.
        if !errors.is_empty() {
            break;
        }
    }
    let mut seen = BTreeSet::new();
    errors.retain(|error| seen.insert(error.clone()));
    match errors.as_slice() {
        [] => Ok(()),
        [only] => Err(only.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

/// Returns the bound of each resource in one field of a LimitRange item, such as `max`.
fn bounds<'a>(limit: &Cursor<'a>, field: &str) -> impl Iterator<Item = (&'a SmolStr, Quantity)> + use<'a> {
    let map = limit.map(field).into_iter().flatten();
    map.filter_map(|(name, it)| Some((name, Quantity::parse(it.as_str()?).ok()?)))
}

fn check_all(kind: &str, limit: &Cursor<'_>, asked: &Asked, errors: &mut Vec<String>) {
    for (name, bound) in bounds(limit, "min") {
        let usage = format!("minimum {name} usage per {kind} is {bound}");
        match (asked.requests.get(name.as_str()), asked.limits.get(name.as_str())) {
            (None, _) => errors.push(format!("{usage}.  No request is specified")),
            (Some(request), _) if *request < bound => errors.push(format!("{usage}, but request is {request}")),
            (Some(_), Some(limit)) if *limit < bound => errors.push(format!("{usage}, but limit is {limit}")),
            (Some(_), _) => {}
        }
    }
    for (name, bound) in bounds(limit, "max") {
        let usage = format!("maximum {name} usage per {kind} is {bound}");
        match (asked.requests.get(name.as_str()), asked.limits.get(name.as_str())) {
            (_, None) => errors.push(format!("{usage}.  No limit is specified")),
            (_, Some(limit)) if *limit > bound => errors.push(format!("{usage}, but limit is {limit}")),
            (Some(request), _) if *request > bound => errors.push(format!("{usage}, but request is {request}")),
            _ => {}
        }
    }
    for (name, bound) in bounds(limit, "maxLimitRequestRatio") {
        let usage = format!("{name} max limit to request ratio per {kind} is {bound}");
        let amount = |of: &BTreeMap<String, Quantity>| of.get(name.as_str()).filter(|it| it.signum() > 0).copied();
        match (amount(&asked.requests), amount(&asked.limits)) {
            (None, _) => errors.push(format!("{usage}, but no request is specified or request is 0")),
            (Some(_), None) => errors.push(format!("{usage}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                let ratio = limit.milli_value() as f64 / request.milli_value() as f64;
                if ratio * 1000.0 > bound.milli_value() as f64 {
                    errors.push(format!("{usage}, but provided ratio is {ratio:.6}"));
                }
            }
        }
    }
}

/// Checks a claim, which only has requests.
fn check_claim(limit: &Cursor<'_>, asked: &Asked, errors: &mut Vec<String>) {
    let kind = "PersistentVolumeClaim";
    for (name, bound) in bounds(limit, "min") {
        let usage = format!("minimum {name} usage per {kind} is {bound}");
        match asked.requests.get(name.as_str()) {
            None => errors.push(format!("{usage}.  No request is specified")),
            Some(request) if *request < bound => errors.push(format!("{usage}, but request is {request}")),
            Some(_) => {}
        }
    }
    for (name, bound) in bounds(limit, "max") {
        let usage = format!("maximum {name} usage per {kind} is {bound}");
        match asked.requests.get(name.as_str()) {
            None => errors.push(format!("{usage}.  No request is specified")),
            Some(request) if *request > bound => errors.push(format!("{usage}, but request is {request}")),
            Some(_) => {}
        }
    }
}
