//! Computes the recommended numbers of replicas from the metrics of an autoscaler (`replica_calculator.go`).

use std::sync::Arc;

use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::quantity::Quantity;
use crate::workers::workloads::cluster::selects;
use crate::workers::workloads::kubelet::Kubelet;
use crate::workers::workloads::pods::{is_ready, phase, spec};
use crate::workers::workloads::resource::Resource;
use crate::workers::workloads::sees::{Sees, selector_of, service_selector};

/// Maximum deviation of the ratio from 1 that does not cause a change, in thousandths.
const TOLERANCE: i64 = 100;

/// Number of replicas that a metric recommends, with the name and the status of the metric.
pub(super) struct Measured {
    pub(super) replicas: i64,
    /// The name of the metric in events and conditions.
    pub(super) name: String,
    /// Entry of the metric in `currentMetrics`.
    pub(super) status: Value,
}

/// Error for a metric whose value cannot be determined.
pub(super) struct Failure {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The Pods of the target.
struct Pods<'a> {
    all: Vec<&'a Arc<Object>>,
    current: i64,
    kubelet: &'a Kubelet,
}

/// Usage of a resource by the Pods that report it.
#[derive(Default)]
struct Usage {
    /// Usage and request of each ready Pod, in thousandths.
    ready: Vec<(i64, i64)>,
    /// Requests of pending Pods and, for `cpu`, of Pods that are not ready.
    unready: Vec<i64>,
    /// Requests of Pods that do not report a value.
    missing: Vec<i64>,
}

/// Measures all metrics of an autoscaler.
pub(super) fn measure(
    autoscaler: &Object,
    target: &(Resource, &Arc<Object>),
    current: i64,
    sees: &Sees<'_>,
    kubelet: &Kubelet,
) -> (Vec<Measured>, Vec<Failure>) {
    let selector = match target.0 {
        Resource::ReplicationController => service_selector(target.1),
        _ => selector_of(spec(target.1), "selector"),
    };
    let mut all: Vec<&Arc<Object>> = Vec::new();
    if let Some(selector) = selector {
        let within = sees.cluster.within(Resource::Pod, autoscaler.namespace());
        all.extend(within.filter(|it| selects(&selector, it) && !it.is_terminating() && phase(it) != "Failed"));
    }
    let pods = Pods { all, current, kubelet };
    let (mut measured, mut failures) = (Vec::new(), Vec::new());
    for metric in Cursor::root(autoscaler).maps("spec.metrics") {
        match pods.measure(metric, autoscaler.namespace()) {
            Ok(it) => measured.push(it),
            Err(failure) => failures.push(failure),
        }
    }
    (measured, failures)
}

impl Pods<'_> {
    fn measure(&self, metric: &Map, namespace: &str) -> Result<Measured, Failure> {
        let cursor = Cursor::root(metric);
        let field = |name: &str| cursor.map_or_empty(name);
        match cursor.text("type") {
            "Resource" => self.resource(field("resource"), "resource", ""),
            "ContainerResource" => {
                let of = field("containerResource");
                self.resource(of, "containerResource", Cursor::root(of).text("container"))
            }
            "Pods" => self.pods(field("pods")),
            "External" => self.total(field("external"), "external", namespace),
            "Object" => self.total(field("object"), "object", namespace),
            other => Err(Failure {
                reason: "InvalidMetricSourceType",
                message: format!("unknown metric source type \"{other}\""),
            }),
        }
    }

    /// Measures the usage of a resource by Pods, or by one container of each Pod.
    fn resource(&self, metric: &Map, field: &str, container: &str) -> Result<Measured, Failure> {
        let cursor = Cursor::root(metric);
        let name = cursor.text("name");
        let usage = self.usage(name, container);
        let failed = |message: String| Failure {
            reason: match container {
                "" => "FailedGetResourceMetric",
                _ => "FailedGetContainerResourceMetric",
            },
            message: format!("failed to get {name} utilization: {message}"),
        };
        if usage.ready.is_empty() && usage.unready.is_empty() {
            return Err(failed(
                "unable to get metrics for resource ".to_owned()
                    + name
                    + ": no metrics returned from resource metrics API",
            ));
        }
        let total: i64 = usage.ready.iter().map(|(used, _)| used).sum();
        let count = i64::try_from(usage.ready.len()).unwrap_or(i64::MAX);
        let average = if count == 0 { 0 } else { total / count };
        let mut current = json!({"averageValue": quantity(average)});
        let (replicas, kind) = match cursor.integer("target.averageUtilization") {
            Some(target) => {
                if let Some(pod) = self.without_request(name, container) {
                    return Err(failed(format!("missing request for {name} in container {pod}")));
                }
                let requested: i64 = usage.ready.iter().map(|(_, request)| request).sum();
                let utilization = if requested == 0 { 0 } else { total * 100 / requested };
                current["averageUtilization"] = utilization.into();
                let wanted = |request: i64| request * target / 100;
                (self.replicas(&usage, wanted), "utilization (percentage of request)")
            }
            None => {
                let target = milli(cursor.text("target.averageValue"));
                (self.replicas(&usage, |_| target), "")
            }
        };
        let shown = match container {
            "" => format!("{name} resource"),
            container => format!("{name} container resource of container {container}"),
        };
        let mut status = json!({"name": name, "current": current});
        if !container.is_empty() {
            status["container"] = container.into();
        }
        Ok(Measured {
            replicas,
            name: format!("{shown} {kind}").trim_end().to_owned(),
            status: entry(field, status),
        })
    }

    /// Measures a metric that scripts of Pods report.
    fn pods(&self, metric: &Map) -> Result<Measured, Failure> {
        let cursor = Cursor::root(metric);
        let name = cursor.text("metric.name");
        let usage = self.usage(name, "");
        if usage.ready.is_empty() {
            let message = format!("unable to get metric {name}: no metrics returned from custom metrics API");
            return Err(Failure {
                reason: "FailedGetPodsMetric",
                message,
            });
        }
        let target = milli(cursor.text("target.averageValue"));
        let total: i64 = usage.ready.iter().map(|(used, _)| used).sum();
        let count = i64::try_from(usage.ready.len()).unwrap_or(i64::MAX);
        let current = json!({"averageValue": quantity(total / count.max(1))});
        Ok(Measured {
            replicas: self.replicas(&usage, |_| target),
            name: format!("pods metric {name}"),
            status: entry("pods", json!({"metric": {"name": name}, "current": current})),
        })
    }

    /// Measures a metric that the test sets.
    fn total(&self, metric: &Map, field: &str, namespace: &str) -> Result<Measured, Failure> {
        let cursor = Cursor::root(metric);
        let name = cursor.text("metric.name");
        let Some(value) = self.kubelet.metric_value(name) else {
            let (reason, kind) = match field {
                "external" => ("FailedGetExternalMetric", "external metric"),
                _ => ("FailedGetObjectMetric", "metric"),
            };
            let message = format!("unable to get {kind} {namespace}/{name}: no metrics returned");
            return Err(Failure { reason, message });
        };
        let used = milli(&value);
        let ready = self.all.iter().filter(|it| is_ready(it)).count();
        let ready = i64::try_from(ready).unwrap_or(i64::MAX);
        let (replicas, current) = match cursor.is_set("target.averageValue") {
            true => {
                let target = milli(cursor.text("target.averageValue")).max(1);
                let average = used / self.current.max(1);
                (
                    self.by_ratio(used, target * self.current, up(used, target)),
                    json!({"averageValue": quantity(average)}),
                )
            }
            false => {
                let target = milli(cursor.text("target.value")).max(1);
                let wanted = up(used * ready, target);
                (self.by_ratio(used, target, wanted), json!({"value": quantity(used)}))
            }
        };
        let mut status = json!({"metric": {"name": name}, "current": current});
        if let Some(object) = metric.get("describedObject") {
            status["describedObject"] = object.clone();
        }
        Ok(Measured {
            replicas,
            name: format!("{field} metric {name}"),
            status: entry(field, status),
        })
    }

    /// Returns `wanted`, unless the ratio is within the tolerance.
    fn by_ratio(&self, used: i64, target: i64, wanted: i64) -> i64 {
        match is_close(used, target) {
            true => self.current,
            false => wanted,
        }
    }

    /// Returns the number of replicas with which the usage of each Pod reaches the target for its request. Pods without
    /// a value are counted in a way that makes the change smaller.
    fn replicas(&self, usage: &Usage, wanted: impl Fn(i64) -> i64) -> i64 {
        let mut used: i64 = usage.ready.iter().map(|(used, _)| used).sum();
        let mut target: i64 = usage.ready.iter().map(|(_, request)| wanted(*request)).sum();
        let ready = i64::try_from(usage.ready.len()).unwrap_or(i64::MAX);
        let is_up = used > target;
        let counts_unready = is_up && !usage.unready.is_empty();
        if !counts_unready && usage.missing.is_empty() {
            return self.by_ratio(used, target, up(used * ready, target.max(1)));
        }
        let mut count = ready;
        for request in &usage.missing {
            count += 1;
            target += wanted(*request);
            // A Pod without a value counts with its target usage when scaling down, and with zero when scaling up.
            used += if is_up { 0 } else { wanted(*request) };
        }
        if counts_unready {
            for request in &usage.unready {
                count += 1;
                target += wanted(*request);
            }
        }
        let replicas = up(used * count, target.max(1));
        let turns = (used > target) != is_up;
        let overshoots = (used < target && replicas > self.current) || (used > target && replicas < self.current);
        match is_close(used, target) || turns || overshoots {
            true => self.current,
            false => replicas,
        }
    }

    fn usage(&self, name: &str, container: &str) -> Usage {
        let mut usage = Usage::default();
        for pod in &self.all {
            let containers: Vec<&Map> = Cursor::root(pod)
                .maps("spec.containers")
                .filter(|it| container.is_empty() || Cursor::root(it).text("name") == container)
                .collect();
            let request: i64 = containers.iter().map(|it| request(it, name)).sum();
            let count = i64::try_from(containers.len()).unwrap_or(0);
            let is_resource = matches!(name, "cpu" | "memory");
            let used = self.kubelet.script_of(pod).usage_of(name);
            match used.map(|it| milli(&it) * if is_resource { count } else { 1 }) {
                _ if phase(pod) == "Pending" => usage.unready.push(request),
                None => usage.missing.push(request),
                Some(_) if name == "cpu" && !is_ready(pod) => usage.unready.push(request),
                Some(used) => usage.ready.push((used, request)),
            }
        }
        usage
    }

    /// Returns the first container without a request, and its Pod.
    fn without_request(&self, name: &str, container: &str) -> Option<String> {
        self.all.iter().find_map(|pod| {
            let mut containers = Cursor::root(pod).maps("spec.containers");
            let found = containers.find(|it| {
                let its_name = Cursor::root(it).text("name");
                (container.is_empty() || its_name == container) && request(it, name) == 0
            })?;
            Some(format!("{} of Pod {}", Cursor::root(found).text("name"), pod.name()))
        })
    }
}

/// Returns the entry of a metric in `currentMetrics`.
fn entry(field: &str, status: Value) -> Value {
    let kind = match field {
        "resource" => "Resource",
        "containerResource" => "ContainerResource",
        "pods" => "Pods",
        "external" => "External",
        _ => "Object",
    };
    let mut map = Map::new();
    map.insert("type".into(), kind.into());
    map.insert(field.into(), status);
    Value::Object(map)
}

/// Returns the request of a container in thousandths.
fn request(container: &Map, name: &str) -> i64 {
    milli(Cursor::root(container).text(&format!("resources.requests.{name}")))
}

/// Parses a quantity as thousandths; 0 if it is absent.
fn milli(text: &str) -> i64 {
    Quantity::parse(text).map_or(0, |it| it.milli_value())
}

/// Formats thousandths as a quantity.
fn quantity(milli: i64) -> String {
    match milli % 1000 {
        0 => (milli / 1000).to_string(),
        _ => format!("{milli}m"),
    }
}

/// Divides two numbers and rounds up.
fn up(one: i64, other: i64) -> i64 {
    (one + other - 1) / other
}

/// Returns `true` if the ratio of two amounts is within the tolerance.
fn is_close(used: i64, target: i64) -> bool {
    let (used, target) = (i128::from(used), i128::from(target));
    (used - target).abs() * 1000 <= target * i128::from(TOLERANCE)
}
