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
const TOLERANCE: i128 = 100;

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
    ready: Vec<(i128, i128)>,
    /// Requests of pending Pods and, for `cpu`, of Pods that are not ready.
    unready: Vec<i128>,
    /// Requests of Pods that do not report a value.
    missing: Vec<i128>,
    /// Set if any Pod reports a value.
    is_reported: bool,
}

impl Usage {
    /// Returns the sum of the usage of the ready Pods.
    fn total(&self) -> i128 {
        self.ready.iter().map(|(used, _)| used).sum()
    }

    /// Returns the average usage of the ready Pods.
    fn average(&self) -> i128 {
        self.total() / count(self.ready.len()).max(1)
    }

    /// Returns the reason why the usage cannot be measured.
    fn refusal(&self, unreported: String) -> Option<String> {
        match (self.is_reported, self.ready.is_empty()) {
            (false, _) => Some(unreported),
            (true, true) => Some("did not receive metrics for targeted pods (pods might be unready)".to_owned()),
            (true, false) => None,
        }
    }
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
        let unreported =
            format!("unable to get metrics for resource {name}: no metrics returned from resource metrics API");
        if let Some(why) = usage.refusal(unreported) {
            return Err(failed(why));
        }
        let mut current = json!({"averageValue": quantity(usage.average())});
        let (replicas, kind) = match cursor.integer("target.averageUtilization") {
            Some(target) => {
                if let Some(pod) = self.without_request(name, container) {
                    return Err(failed(format!("missing request for {name} in container {pod}")));
                }
                let requested: i128 = usage.ready.iter().map(|(_, request)| request).sum();
                let utilization = (usage.total() * 100).checked_div(requested).unwrap_or(0);
                current["averageUtilization"] = number(utilization).into();
                let target = i128::from(target);
                let wanted = |request: i128| request * target / 100;
                let missing = |request: i128| request * target.max(100) / 100;
                (
                    self.replicas(&usage, wanted, missing),
                    "utilization (percentage of request)",
                )
            }
            None => {
                let target = milli(cursor.text("target.averageValue"));
                (self.replicas(&usage, |_| target, |_| target), "")
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
        let unreported = format!("unable to get metric {name}: no metrics returned from custom metrics API");
        if let Some(message) = usage.refusal(unreported) {
            return Err(Failure {
                reason: "FailedGetPodsMetric",
                message,
            });
        }
        let target = milli(cursor.text("target.averageValue"));
        let current = json!({"averageValue": quantity(usage.average())});
        Ok(Measured {
            replicas: self.replicas(&usage, |_| target, |_| target),
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
        let ready = count(self.all.iter().filter(|it| is_ready(it)).count());
        let (replicas, current) = match cursor.is_set("target.averageValue") {
            true => {
                let target = milli(cursor.text("target.averageValue")).max(1);
                let replicas = i128::from(self.current);
                let average = used / replicas.max(1);
                (
                    self.by_ratio(used, target * replicas, up(used, target)),
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
    fn by_ratio(&self, used: i128, target: i128, wanted: i128) -> i64 {
        match is_close(used, target) {
            true => self.current,
            false => number(wanted),
        }
    }

    /// Returns the number of replicas with which the usage of each Pod reaches the target for its request. Pods without
    /// a value are counted in a way that makes the change smaller: with zero when scaling up, and with the usage
    /// `missing` for their request when scaling down.
    fn replicas(&self, usage: &Usage, wanted: impl Fn(i128) -> i128, missing: impl Fn(i128) -> i128) -> i64 {
        let mut used = usage.total();
        let mut target: i128 = usage.ready.iter().map(|(_, request)| wanted(*request)).sum();
        let ready = count(usage.ready.len());
        let is_up = used > target;
        let counts_unready = is_up && !usage.unready.is_empty();
        if !counts_unready && usage.missing.is_empty() {
            return self.by_ratio(used, target, up(used * ready, target.max(1)));
        }
        let mut count = ready;
        for request in &usage.missing {
            count += 1;
            target += wanted(*request);
            used += if is_up { 0 } else { missing(*request) };
        }
        if counts_unready {
            for request in &usage.unready {
                count += 1;
                target += wanted(*request);
            }
        }
        let replicas = number(up(used * count, target.max(1)));
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
            let request: i128 = containers.iter().map(|it| request(it, name)).sum();
            let is_resource = matches!(name, "cpu" | "memory");
            let times = if is_resource { count(containers.len()) } else { 1 };
            let used = self.kubelet.script_of(pod).usage_of(name).map(|it| milli(&it) * times);
            let is_pending = phase(pod) == "Pending";
            usage.is_reported |= used.is_some() && !is_pending;
            match used {
                _ if is_pending => usage.unready.push(request),
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
fn request(container: &Map, name: &str) -> i128 {
    milli(Cursor::root(container).text(&format!("resources.requests.{name}")))
}

/// Parses a quantity as thousandths; 0 if it is absent. The sums of such numbers fit into an `i128`.
fn milli(text: &str) -> i128 {
    Quantity::parse(text).map_or(0, |it| it.milli_value().into())
}

/// Formats thousandths as a quantity.
fn quantity(milli: i128) -> String {
    match milli % 1000 {
        0 => (milli / 1000).to_string(),
        _ => format!("{milli}m"),
    }
}

fn count(length: usize) -> i128 {
    i128::try_from(length).unwrap_or(i128::MAX)
}

/// Converts to an integer of the API, which has 32 bits.
fn number(value: i128) -> i64 {
    i32::try_from(value).unwrap_or(i32::MAX).into()
}

/// Divides two numbers and rounds up.
fn up(one: i128, other: i128) -> i128 {
    (one + other - 1) / other
}

/// Returns `true` if the ratio of two amounts is within the tolerance.
fn is_close(used: i128, target: i128) -> bool {
    (used - target).abs() * 1000 <= target * TOLERANCE
}
