//! Serves `metrics.k8s.io/v1beta1` like metrics-server, for `kubectl top`. The metrics are the usage that scripts of
//! Pods report. The autoscaler uses the same values.

use super::kubelet::Kubelet;
use super::pods::phase;
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::options::Query;
use crate::api::selector::{FieldSelector, LabelSelector};
use crate::registry::Registry;
use crate::registry::scheme::codec;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::quantity::Quantity;
use crate::storage::KeyRange;

/// API group of the metrics.
pub(crate) const GROUP: &str = "metrics.k8s.io";
/// Version of the API group.
pub(crate) const VERSION: &str = "v1beta1";

/// Resources with metrics.
const RESOURCES: [&str; 2] = ["cpu", "memory"];

/// Period over which usage is measured. Usage in scripts is constant.
const WINDOW: &str = "15s";

/// Returns the status code and the body of the response to a GET of a path. The body of a failure is a Status.
pub(crate) fn answer(registry: &Registry, kubelet: &Kubelet, path: &str, query: Option<&str>) -> (u16, Value) {
    let root = format!("/apis/{GROUP}/{VERSION}");
    let Some(rest) = path.strip_prefix(&root) else {
        return not_found("the server could not find the requested resource".to_owned());
    };
    let metrics = Metrics {
        registry,
        kubelet,
        now: registry.reader.entropy.now_seconds(),
    };
    let names: Vec<&str> = rest.split('/').filter(|it| !it.is_empty()).collect();
    match names.as_slice() {
        [] => (200, resources()),
        ["nodes"] => metrics.list("NodeMetricsList", metrics.nodes(), query),
        ["nodes", name] => one(metrics.nodes(), "", name),
        ["pods"] => metrics.list("PodMetricsList", metrics.pods(None), query),
        ["namespaces", namespace, "pods"] => metrics.list("PodMetricsList", metrics.pods(Some(namespace)), query),
        ["namespaces", namespace, "pods", name] => one(metrics.pods(Some(namespace)), namespace, name),
        _ => not_found("the server could not find the requested resource".to_owned()),
    }
}

struct Metrics<'a> {
    registry: &'a Registry,
    kubelet: &'a Kubelet,
    now: String,
}

impl Metrics<'_> {
    fn stored(&self, resource: &str, namespace: Option<&str>) -> Vec<Object> {
        let reader = &self.registry.reader;
        let Some(row) = reader.scheme().lookup("", "v1", resource) else {
            return Vec::new();
        };
        let range = KeyRange::of(namespace);
        let snapshot = reader.store.snapshot(&row.storage);
        let objects = snapshot.range(&range).map(|stored| codec::decode(&row, stored));
        objects.collect()
    }

    /// Returns the usage of each container of a Pod; `None` for a Pod that is not running or does not report usage.
    fn usage(&self, pod: &Object) -> Option<Map> {
        if phase(pod) != "Running" {
            return None;
        }
        let script = self.kubelet.script_of(pod);
        let mut usage = Map::new();
        for name in RESOURCES {
            if let Some(amount) = script.usage_of(name) {
                usage.insert(name.into(), amount.into());
            }
        }
        (!usage.is_empty()).then_some(usage)
    }

    fn pods(&self, namespace: Option<&str>) -> Vec<Value> {
        let pods = self.stored("pods", namespace);
        let measured = pods.iter().filter_map(|pod| {
            let usage = self.usage(pod)?;
            let containers = Cursor::root(pod).maps("spec.containers").map(|it| {
                let name = Cursor::root(it).text("name");
                json!({"name": name, "usage": usage.clone()})
            });
            let mut metrics = self.measured("PodMetrics", pod);
            metrics["metadata"]["namespace"] = pod.namespace().into();
            metrics["containers"] = containers.collect::<Vec<Value>>().into();
            Some(metrics)
        });
        measured.collect()
    }

    /// Returns the metrics of Nodes. The usage of a Node is the sum of its Pods.
    fn nodes(&self) -> Vec<Value> {
        let pods = self.stored("pods", None);
        let nodes = self.stored("nodes", None);
        let measured = nodes.iter().map(|node| {
            let own = pods
                .iter()
                .filter(|pod| Cursor::root(pod).text("spec.nodeName") == node.name());
            let mut total = RESOURCES.map(|_| Quantity::from_int(0));
            for pod in own {
                let Some(usage) = self.usage(pod) else { continue };
                let containers = Cursor::root(pod).list("spec.containers").len();
                for (name, total) in RESOURCES.iter().zip(&mut total) {
                    let amount = Quantity::parse(Cursor::root(&usage).text(name));
                    for amount in amount.iter().flat_map(|it| std::iter::repeat_n(it, containers)) {
                        *total = total.add(amount);
                    }
                }
            }
            let mut metrics = self.measured("NodeMetrics", node);
            let mut usage = Map::new();
            for (name, total) in RESOURCES.iter().zip(&total) {
                usage.insert((*name).into(), total.to_string().into());
            }
            metrics["usage"] = usage.into();
            metrics
        });
        measured.collect()
    }

    /// Returns the fields that PodMetrics and NodeMetrics have in common.
    fn measured(&self, kind: &str, of: &Object) -> Value {
        let mut metadata = json!({"name": of.name(), "creationTimestamp": self.now});
        if let Some(labels) = of.get("metadata").and_then(|it| it.get("labels")) {
            metadata["labels"] = labels.clone();
        }
        json!({
            "kind": kind, "apiVersion": format!("{GROUP}/{VERSION}"), "metadata": metadata,
            "timestamp": self.now, "window": WINDOW,
        })
    }

    /// Returns a list of the objects that the selectors in the query match.
    fn list(&self, kind: &str, mut items: Vec<Value>, query: Option<&str>) -> (u16, Value) {
        let query = Query::parse(query);
        let text = |name| query.get(name).unwrap_or_default();
        let (labels, fields) = match (
            LabelSelector::parse(text("labelSelector")),
            FieldSelector::parse(text("fieldSelector")),
        ) {
            (Ok(labels), Ok(fields)) => (labels, fields),
            (Err(why), _) | (_, Err(why)) => return failure(400, "BadRequest", why.to_string()),
        };
        items.retain(|item| {
            let metadata = &item["metadata"];
            let label = |key: &str| metadata.get("labels")?.get(key)?.as_str();
            let field = |path: &str| match path {
                "metadata.name" => metadata["name"].as_str().unwrap_or_default(),
                "metadata.namespace" => metadata["namespace"].as_str().unwrap_or_default(),
                _ => "",
            };
            labels.matches(label) && fields.matches(field)
        });
        let list = json!({
            "kind": kind, "apiVersion": format!("{GROUP}/{VERSION}"), "metadata": {}, "items": items,
        });
        (200, list)
    }
}

/// Returns the metrics of a single object.
fn one(all: Vec<Value>, namespace: &str, name: &str) -> (u16, Value) {
    if let Some(found) = all.into_iter().find(|it| it["metadata"]["name"] == name) {
        return (200, found);
    }
    let (resource, key) = match namespace {
        "" => ("nodemetrics", name.to_owned()),
        namespace => ("podmetrics", format!("{namespace}/{name}")),
    };
    not_found(format!("{resource}.{GROUP} {key:?} not found"))
}

fn not_found(message: String) -> (u16, Value) {
    failure(404, "NotFound", message)
}

fn failure(code: u16, reason: &str, message: String) -> (u16, Value) {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": reason, "code": code,
    });
    (code, status)
}

fn resources() -> Value {
    let resource = |name: &str, kind: &str, namespaced: bool| {
        json!({
            "name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"],
        })
    };
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": [resource("nodes", "NodeMetrics", false), resource("pods", "PodMetrics", true)],
    })
}
