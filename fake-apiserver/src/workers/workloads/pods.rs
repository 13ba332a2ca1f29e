//! Properties of Pods shared by all controllers: activity, readiness, availability, order of deletion, and creation
//! from a template.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::plan::controller_reference;
use super::resource::Resource;
use crate::api::json::{Map, Value, json};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;

pub(crate) fn spec(object: &Object) -> &Map {
    Cursor::root(object).map_or_empty("spec")
}

pub(crate) fn status(object: &Object) -> &Map {
    Cursor::root(object).map_or_empty("status")
}

/// Returns the node to which a Pod without a node is nominated, or an empty string.
pub(crate) fn nomination(pod: &Object) -> &str {
    let pod = Cursor::root(pod);
    match pod.text("spec.nodeName") {
        "" => pod.text("status.nominatedNodeName"),
        _ => "",
    }
}

/// Returns the annotation with this name.
pub(crate) fn annotation<'a>(object: &'a Object, name: &str) -> Option<&'a str> {
    object
        .metadata()
        .and_then(|meta| Cursor::root(meta).map_or_empty("annotations").get(name)?.as_str())
}

/// Returns the label with this name.
pub(crate) fn label<'a>(object: &'a Object, name: &str) -> Option<&'a str> {
    object
        .metadata()
        .and_then(|meta| Cursor::root(meta).map_or_empty("labels").get(name)?.as_str())
}

/// Returns `metadata.generation`.
pub(crate) fn generation(object: &Object) -> i64 {
    object
        .metadata()
        .and_then(|meta| Cursor::root(meta).integer("generation"))
        .unwrap_or(0)
}

/// Parses a time in metadata or in a condition.
pub(crate) fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// Returns `metadata.creationTimestamp`.
pub(crate) fn created(object: &Object) -> Timestamp {
    time(object.meta_str("creationTimestamp")).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Adds seconds to a time.
pub(crate) fn plus(at: Timestamp, seconds: i64) -> Timestamp {
    at.saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(Timestamp::MAX)
}

/// Returns `status.phase`.
pub(crate) fn phase(pod: &Object) -> &str {
    Cursor::root(pod).text("status.phase")
}

/// Returns `true` if a Pod has ended.
pub(crate) fn is_finished(pod: &Object) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Returns `true` if a Pod is active: neither ended nor being deleted.
pub(crate) fn is_active(pod: &Object) -> bool {
    !is_finished(pod) && !pod.is_terminating()
}

/// Returns a condition by its type.
pub(crate) fn condition<'a>(object: &'a Object, kind: &str) -> Option<&'a Map> {
    Cursor::root(object)
        .maps("status.conditions")
        .find(|it| Cursor::root(it).text("type") == kind)
}

/// Returns `true` if the condition of this type has the status `True`.
pub(crate) fn is_true(object: &Object, kind: &str) -> bool {
    condition(object, kind).is_some_and(|it| Cursor::root(it).text("status") == "True")
}

/// Returns `true` if a Pod is ready.
pub(crate) fn is_ready(pod: &Object) -> bool {
    is_true(pod, "Ready")
}

/// Returns the time at which a Pod will have been ready for `seconds`; `None` if it is not ready.
pub(crate) fn available_at(pod: &Object, seconds: i64) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|it| Cursor::root(it).text("status") == "True")?;
    let since = time(Cursor::root(ready).text("lastTransitionTime"));
    match (seconds, since) {
        (..=0, _) => Some(Timestamp::MIN),
        (_, since) => since.map(|since| plus(since, seconds)),
    }
}

/// Returns `true` if a Pod has been ready for this number of seconds.
pub(crate) fn is_available(pod: &Object, seconds: i64, now: Timestamp) -> bool {
    available_at(pod, seconds).is_some_and(|at| at <= now)
}

/// Returns a new Pod from a template, with its controller as owner.
pub(crate) fn from_template(resource: Resource, owner: &Object, template: &Map) -> Value {
    let meta = Cursor::root(template).map_or_empty("metadata");
    let mut metadata = json!({
        "generateName": format!("{}-", owner.name()),
        "namespace": owner.namespace(),
        "ownerReferences": [controller_reference(resource, owner)],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = meta.get(field).filter(|it| !it.is_null()) {
            metadata[field] = value.clone();
        }
    }
    json!({"metadata": metadata, "spec": Cursor::root(template).map_or_empty("spec")})
}

/// Returns the sidecars of a Pod: the init containers that are always restarted.
pub(crate) fn sidecars(pod: &Object) -> impl Iterator<Item = &Map> {
    let containers = Cursor::root(pod).maps("spec.initContainers");
    containers.filter(|it| Cursor::root(it).text("restartPolicy") == "Always")
}

/// Returns the maximum restart counts among the containers and among the sidecars of a Pod. The sidecars only matter if
/// the counts of the containers are equal.
fn restarts(pod: &Object) -> (i64, i64) {
    let sidecars: Vec<&str> = sidecars(pod).map(|it| Cursor::root(it).text("name")).collect();
    let count = |it: &Map| Cursor::root(it).integer("restartCount");
    let of = |list| Cursor::root(status(pod)).maps(list);
    let others = of("initContainerStatuses").filter(|it| sidecars.contains(&Cursor::root(it).text("name")));
    let most = of("containerStatuses").filter_map(count).max().unwrap_or(0);
    (most, others.filter_map(count).max().unwrap_or(0))
}

/// Returns the annotation `controller.kubernetes.io/pod-deletion-cost`; 0 if it is absent or invalid.
fn deletion_cost(pod: &Object) -> i64 {
    let cost = annotation(pod, "controller.kubernetes.io/pod-deletion-cost");
    cost.and_then(|it| it.parse::<i32>().ok()).map_or(0, i64::from)
}

/// Compares two Pods in the order of scaling down. Pods without a node are deleted first, then Pods that are pending,
/// unknown or running, in this order. Further criteria are: not ready, a lower deletion cost, more siblings on the
/// node, ready for a shorter time, more restarts, younger. Times are compared by the binary logarithms of their ages,
/// so Pods of a similar age are equal. Kubernetes then compares their uids immediately. Here the remaining criteria
/// come first, because the order must be transitive.
pub(crate) fn goes_before(
    one: &Object,
    other: &Object,
    siblings: impl Fn(&Object) -> usize,
    now: Timestamp,
) -> Ordering {
    let rank = |at: Timestamp| {
        let age = now.as_nanosecond() - at.as_nanosecond();
        u128::try_from(age).unwrap_or(0).checked_ilog2().map_or(-1, i64::from)
    };
    // An unknown time is treated as the latest.
    let ready_rank = |pod: &Object| ready_since(pod).map(rank);
    has_node(one)
        .cmp(&has_node(other))
        .then_with(|| progress(one).cmp(&progress(other)))
        .then_with(|| is_ready(one).cmp(&is_ready(other)))
        .then_with(|| deletion_cost(one).cmp(&deletion_cost(other)))
        .then_with(|| siblings(other).cmp(&siblings(one)))
        .then_with(|| ready_rank(one).cmp(&ready_rank(other)))
        .then_with(|| restarts(other).cmp(&restarts(one)))
        .then_with(|| rank(created(one)).cmp(&rank(created(other))))
        .then_with(|| one.uid().cmp(other.uid()))
}

fn has_node(pod: &Object) -> bool {
    !Cursor::root(pod).text("spec.nodeName").is_empty()
}

/// Orders phases: pending Pods first, then Pods of an unknown phase, then others.
fn progress(pod: &Object) -> u8 {
    match phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    }
}

/// Returns the time since which a Pod has been ready; `None` if it is not ready.
fn ready_since(pod: &Object) -> Option<Timestamp> {
    let condition = condition(pod, "Ready").filter(|it| Cursor::root(it).text("status") == "True")?;
    time(Cursor::root(condition).text("lastTransitionTime"))
}

/// Compares two Pods in the order in which a Job deletes them (Go's `ActivePods`): as in [`goes_before`], but without
/// deletion costs and siblings, and with exact times.
pub(crate) fn goes_before_in_job(one: &Object, other: &Object) -> Ordering {
    has_node(one)
        .cmp(&has_node(other))
        .then_with(|| progress(one).cmp(&progress(other)))
        .then_with(|| is_ready(one).cmp(&is_ready(other)))
        // An unknown time is treated as the latest.
        .then_with(|| match (ready_since(one), ready_since(other)) {
            (Some(one), Some(other)) => other.cmp(&one),
            (one, other) => one.is_some().cmp(&other.is_some()),
        })
        .then_with(|| restarts(other).cmp(&restarts(one)))
        .then_with(|| created(other).cmp(&created(one)))
}

/// Returns the ordinal in the name of a StatefulSet's Pod; `None` if the name does not belong to the set.
pub(crate) fn ordinal(set: &Object, pod: &Object) -> Option<i64> {
    let number = pod.name().strip_prefix(set.name())?.strip_prefix('-')?;
    number.parse().ok().filter(|it: &i64| it.to_string() == number)
}

/// Returns the `count` Pods to delete first.
pub(crate) fn first_to_go<'a>(
    pods: &[&'a Arc<Object>],
    siblings: impl Fn(&str) -> usize,
    count: usize,
    now: Timestamp,
) -> Vec<&'a Arc<Object>> {
    let mut sorted = pods.to_vec();
    if count < sorted.len() {
        let on_node = |pod: &Object| siblings(Cursor::root(pod).text("spec.nodeName"));
        sorted.sort_by(|one, other| goes_before(one, other, on_node, now));
    }
    sorted.truncate(count);
    sorted
}

/// Resolves `value`, which is a number or a percentage of `total`.
pub(crate) fn scaled(value: Option<&Value>, total: i64, round_up: bool) -> i64 {
    match value {
        Some(Value::Number(number)) => number.as_i64().unwrap_or(0),
        Some(Value::String(text)) => {
            let percent = text
                .strip_suffix('%')
                .and_then(|it| it.parse::<i64>().ok())
                .unwrap_or(0);
            let hundredfold = total.saturating_mul(percent);
            if round_up {
                hundredfold.saturating_add(99) / 100
            } else {
                hundredfold / 100
            }
        }
        _ => 0,
    }
}
