//! Computes the recommended numbers of replicas from the metrics of an autoscaler (`replica_calculator.go`).

use std::sync::Arc;

use super::amounts::{amount, identifier, milli, quantity, requests, selector_text};
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::api::selector::LabelSelector;
use crate::registry::types::cursor::Cursor;
use crate::workers::workloads::kubelet::Kubelet;
use crate::workers::workloads::pods::{condition, is_ready, phase, plus, time};
use crate::workers::workloads::resource::Resource;
use crate::workers::workloads::scale::Scale;
use crate::workers::workloads::sees::Sees;

/// Default for the deviation of the ratio from 1 that does not cause a change, in thousandths.
const TOLERANCE: i128 = 100;

/// Number of seconds after the start of a Pod during which its `cpu` usage is ignored while it is not ready.
const INITIALIZATION: i64 = 300;
/// A Pod whose readiness last changed within this number of seconds after its start is treated as never ready.
const FIRST_READINESS: i64 = 30;

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
    /// Text before the message in the error that summarizes all invalid metrics.
    pub(super) prefix: String,
}

/// The Pods of the target.
pub(super) struct Pods<'a> {
    all: Vec<&'a Arc<Object>>,
    /// The desired and the observed number of replicas.
    current: i64,
    observed: i64,
    /// Deviations of the ratio below and above 1 that do not cause a change, in thousandths.
    tolerances: (i128, i128),
    sees: &'a Sees<'a>,
    kubelet: &'a Kubelet,
}

/// Sums over Pods, in thousandths, and the number of Pods.
#[derive(Clone, Copy)]
struct Sums {
    used: i128,
    requested: i128,
    count: i128,
}

/// The desired usage of Pods.
#[derive(Clone, Copy)]
enum Wanted {
    /// A percentage of the requests.
    Percent(i128),
    /// An average amount in thousandths.
    Average(i128),
}

impl Wanted {
    /// Returns the usage in the unit of the target, rounded down, and the target.
    fn ratio(self, sums: Sums) -> (i128, i128) {
        match self {
            Self::Percent(target) => (
                (sums.used * 100).checked_div(sums.requested).unwrap_or(0),
                target.max(1),
            ),
            Self::Average(target) => (sums.used / sums.count.max(1), target.max(1)),
        }
    }

    /// Returns the assumed usage of a Pod without a value when scaling down.
    fn missing(self, request: i128) -> i128 {
        match self {
            Self::Percent(target) => request * target.max(100) / 100,
            Self::Average(target) => target,
        }
    }
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
    /// Returns the sums of the usage and of the requests of the ready Pods, and their number.
    fn sums(&self) -> Sums {
        Sums {
            used: self.ready.iter().map(|(used, _)| used).sum(),
            requested: self.ready.iter().map(|(_, request)| request).sum(),
            count: count(self.ready.len()),
        }
    }

    /// Returns the average usage of the ready Pods.
    fn average(&self) -> i128 {
        let sums = self.sums();
        sums.used / sums.count.max(1)
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

/// Measures all metrics of an autoscaler, in order.
pub(super) fn measure(autoscaler: &Object, pods: &Pods<'_>) -> Vec<Result<Measured, Failure>> {
    let metrics = Cursor::root(autoscaler).maps("spec.metrics");
    metrics.map(|it| pods.measure(it, autoscaler.namespace())).collect()
}

impl<'a> Pods<'a> {
    /// Collects the Pods of a target.
    pub(super) fn of(
        autoscaler: &Object,
        scale: &Scale,
        selector: &LabelSelector,
        sees: &'a Sees<'a>,
        kubelet: &'a Kubelet,
    ) -> Self {
        let all = sees.cluster.selected(Resource::Pod, autoscaler.namespace(), selector);
        let tolerance = |way: &str| {
            let own = Cursor::root(autoscaler).map(&format!("spec.behavior.{way}"));
            let own = own
                .map(|it| Cursor::root(it).text("tolerance"))
                .filter(|it| !it.is_empty());
            own.map_or(TOLERANCE, milli)
        };
        Self {
            all: all
                .into_iter()
                .filter(|it| !it.is_terminating() && phase(it) != "Failed")
                .collect(),
            current: scale.replicas,
            observed: scale.observed,
            tolerances: (tolerance("scaleDown"), tolerance("scaleUp")),
            sees,
            kubelet,
        }
    }

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
            "External" => self.external(field("external"), namespace),
            "Object" => self.object(field("object"), namespace),
            other => Err(Failure {
                reason: "InvalidMetricSourceType",
                message: format!("unknown metric source type {other:?}"),
                prefix: String::new(),
            }),
        }
    }

    /// Measures the usage of a resource by Pods, or by one container of each Pod.
    fn resource(&self, metric: &Map, field: &str, container: &str) -> Result<Measured, Failure> {
        let cursor = Cursor::root(metric);
        let name = cursor.text("name");
        let target = cursor.integer("target.averageUtilization");
        let usage = self.usage(name, container);
        let what = if target.is_some() { "utilization" } else { "usage" };
        let failed = |message: String| Failure {
            reason: match container {
                "" => "FailedGetResourceMetric",
                _ => "FailedGetContainerResourceMetric",
            },
            message: format!("failed to get {name} {what}: {message}"),
            prefix: match container {
                "" => format!("failed to get {name} resource metric value: "),
                container => format!("failed to get {container} container metric value: "),
            },
        };
        let unreported =
            format!("unable to get metrics for resource {name}: no metrics returned from resource metrics API");
        if let Some(why) = usage.refusal(unreported) {
            return Err(failed(why));
        }
        let mut current = json!({"averageValue": amount(name, usage.average())});
        let (replicas, shown) = match target {
            Some(target) => {
                if let Some(why) = self.all.iter().find_map(|pod| requests(pod, name, container).err()) {
                    return Err(failed(why));
                }
                let wanted = Wanted::Percent(target.into());
                if usage.sums().requested == 0 {
                    return Err(failed("no metrics returned matched known pods".to_owned()));
                }
                current["averageUtilization"] = number(wanted.ratio(usage.sums()).0).into();
                let shown = if container.is_empty() {
                    "resource"
                } else {
                    "container resource"
                };
                let shown = format!("{name} {shown} utilization (percentage of request)");
                (self.replicas(&usage, wanted), shown)
            }
            None => {
                let wanted = Wanted::Average(milli(cursor.text("target.averageValue")));
                (self.replicas(&usage, wanted), format!("{name} resource"))
            }
        };
        let mut status = json!({"name": name, "current": current});
        if !container.is_empty() {
            status["container"] = container.into();
        }
        Ok(Measured {
            replicas,
            name: shown,
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
                prefix: "failed to get pods metric value: ".to_owned(),
            });
        }
        let wanted = Wanted::Average(milli(cursor.text("target.averageValue")));
        let current = json!({"averageValue": quantity(usage.average())});
        Ok(Measured {
            replicas: self.replicas(&usage, wanted),
            name: format!("pods metric {name}"),
            status: entry("pods", json!({"metric": identifier(metric), "current": current})),
        })
    }

    /// Measures an external metric; the test sets its value.
    fn external(&self, metric: &Map, namespace: &str) -> Result<Measured, Failure> {
        let name = Cursor::root(metric).text("metric.name");
        let selector = selector_text(metric);
        let is_average = Cursor::root(metric).is_set("target.averageValue");
        let failed = |message: String| {
            let kind = format!("failed to get {name} external metric");
            let inner = if is_average {
                kind.clone()
            } else {
                format!("failed to get external metric {name}")
            };
            Failure {
                reason: "FailedGetExternalMetric",
                message,
                prefix: format!("{kind} value: {inner}: "),
            }
        };
        let Some(value) = self.kubelet.metric_value(name) else {
            let subject = format!("unable to get external metric {namespace}/{name}/{selector}");
            return Err(failed(format!(
                "{subject}: no metrics returned from external metrics API"
            )));
        };
        let (replicas, current) = self.total(metric, milli(&value)).map_err(failed)?;
        Ok(Measured {
            replicas,
            name: format!("external metric {name}({selector})"),
            status: entry("external", json!({"metric": identifier(metric), "current": current})),
        })
    }

    /// Measures a metric of an object; the test sets its value.
    fn object(&self, metric: &Map, namespace: &str) -> Result<Measured, Failure> {
        let cursor = Cursor::root(metric);
        let name = cursor.text("metric.name");
        let (kind, object) = (cursor.text("describedObject.kind"), cursor.text("describedObject.name"));
        let is_average = cursor.is_set("target.averageValue");
        let failed = |message: String| {
            let inner = if is_average {
                format!("failed to get {name} object metric: ")
            } else {
                String::new()
            };
            Failure {
                reason: "FailedGetObjectMetric",
                message,
                prefix: format!("failed to get object metric value: {inner}"),
            }
        };
        let Some(value) = self.kubelet.metric_value(name) else {
            let why = "no metrics returned from custom metrics API";
            return Err(failed(format!(
                "unable to get metric {name}: {why} on {kind} {namespace}/{object}"
            )));
        };
        let (replicas, current) = self.total(metric, milli(&value)).map_err(failed)?;
        let described = metric.get("describedObject").cloned().unwrap_or_default();
        let status = json!({"metric": identifier(metric), "current": current, "describedObject": described});
        Ok(Measured {
            replicas,
            name: match is_average {
                true => format!("external metric {name}({})", selector_text(metric)),
                false => format!("{kind} metric {name}"),
            },
            status: entry("object", status),
        })
    }

    /// Returns the recommendation and the current value for a total amount, which is compared with a target for all
    /// Pods or for each Pod.
    fn total(&self, metric: &Map, used: i128) -> Result<(i64, Value), String> {
        let cursor = Cursor::root(metric);
        if cursor.is_set("target.averageValue") {
            let target = milli(cursor.text("target.averageValue")).max(1);
            let observed = i128::from(self.observed);
            let replicas = match self.is_close(used, target * observed) {
                true => self.observed,
                false => number(up(used, target)),
            };
            return Ok((replicas, json!({"averageValue": quantity(up(used, observed.max(1)))})));
        }
        let target = milli(cursor.text("target.value")).max(1);
        let current = json!({"value": quantity(used)});
        if self.current == 0 {
            return Ok((number(up(used, target)), current));
        }
        if self.is_close(used, target) {
            return Ok((self.current, current));
        }
        if self.all.is_empty() {
            let why = "no pods returned by selector while calculating replica count";
            return Err(format!("unable to calculate ready pods: {why}"));
        }
        let ready = self
            .all
            .iter()
            .filter(|it| phase(it) == "Running" && is_ready(it))
            .count();
        Ok((number(up(used * count(ready), target)), current))
    }

    /// Returns `true` if the ratio of two amounts is within the tolerances.
    fn is_close(&self, used: i128, target: i128) -> bool {
        let (down, above) = self.tolerances;
        let used = used * 1000;
        target * (1000 - down) <= used && used <= target * (1000 + above)
    }

    /// Returns the number of replicas with which the usage reaches the target. Pods without a value are counted in a
    /// way that makes the change smaller: with zero when scaling up, and with an assumed usage when scaling down.
    fn replicas(&self, usage: &Usage, wanted: Wanted) -> i64 {
        let mut sums = usage.sums();
        let (used, target) = wanted.ratio(sums);
        let counts_unready = used > target && !usage.unready.is_empty();
        if !counts_unready && usage.missing.is_empty() {
            return match self.is_close(used, target) {
                true => self.current,
                false => number(up(used * sums.count, target)),
            };
        }
        let mut add = |used: i128, request: &i128| {
            sums.used += used;
            sums.requested += request;
            sums.count += 1;
        };
        for request in usage.missing.iter().filter(|_| used != target) {
            add(if used > target { 0 } else { wanted.missing(*request) }, request);
        }
        for request in usage.unready.iter().filter(|_| counts_unready) {
            add(0, request);
        }
        let (next, _) = wanted.ratio(sums);
        let turns = (used < target && next > target) || (used > target && next < target);
        let replicas = number(up(next * sums.count, target));
        let overshoots = (next < target && replicas > self.current) || (next > target && replicas < self.current);
        match self.is_close(next, target) || turns || overshoots {
            true => self.current,
            false => replicas,
        }
    }

    fn usage(&self, name: &str, container: &str) -> Usage {
        let mut usage = Usage::default();
        for pod in &self.all {
            let containers = Cursor::root(pod).maps("spec.containers");
            let containers = containers.filter(|it| container.is_empty() || Cursor::root(it).text("name") == container);
            let request = requests(pod, name, container).unwrap_or(0);
            let is_resource = matches!(name, "cpu" | "memory");
            let times = if is_resource { count(containers.count()) } else { 1 };
            let used = self.kubelet.script_of(pod).usage_of(name).map(|it| milli(&it) * times);
            let is_pending = phase(pod) == "Pending";
            usage.is_reported |= used.is_some() && !is_pending;
            match used {
                _ if is_pending => usage.unready.push(request),
                None => usage.missing.push(request),
                Some(_) if name == "cpu" && self.is_unready(pod) => usage.unready.push(request),
                Some(used) => usage.ready.push((used, request)),
            }
        }
        usage
    }

    /// Returns `true` if the usage of a Pod is not representative yet: the Pod is not ready, and has started recently
    /// or was never ready (Go's `groupPods`).
    fn is_unready(&self, pod: &Object) -> bool {
        let started = time(Cursor::root(pod).text("status.startTime"));
        let (Some(started), Some(ready)) = (started, condition(pod, "Ready")) else {
            return true;
        };
        let is_false = Cursor::root(ready).text("status") == "False";
        if plus(started, INITIALIZATION) > self.sees.now {
            return is_false;
        }
        let since = time(Cursor::root(ready).text("lastTransitionTime"));
        is_false && since.is_none_or(|it| plus(started, FIRST_READINESS) > it)
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
