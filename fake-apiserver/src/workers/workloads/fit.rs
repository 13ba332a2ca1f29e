//! Compares the requests of Pods with the free resources of a Node (`NodeResourcesFit` of the scheduler).

use std::collections::BTreeMap;

use super::pods::spec;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::quantity::Quantity;

/// Amounts of resources by their names.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// The unfinished Pods of a Node, and the sum of their requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    /// Number of unfinished Pods on the Node.
    pub(crate) pods: usize,
    /// Sum of the requests of these Pods.
    asked: Amounts,
}

impl Load {
    /// Returns the sum of the requests.
    pub(crate) fn asked(&self) -> &Amounts {
        &self.asked
    }

    pub(crate) fn add(&mut self, pod: &Object) {
        self.pods += 1;
        add(&mut self.asked, &requests(pod));
    }

    pub(crate) fn remove(&mut self, pod: &Object) {
        self.pods = self.pods.saturating_sub(1);
        for (name, amount) in requests(pod) {
            if let Some(sum) = self.asked.get_mut(&name) {
                *sum = sum.subtract(&amount);
            }
        }
    }
}

/// Returns the requests of a Pod (`PodRequests` of k8s.io/component-helpers): the sum of its containers and sidecars,
/// or the sum of an init container and the sidecars started before it, whichever is greater.
pub(crate) fn requests(pod: &Object) -> Amounts {
    let pod_spec = Cursor::root(spec(pod));
    let mut sum = Amounts::new();
    for container in pod_spec.maps("containers") {
        add(&mut sum, &amounts(Cursor::root(container).map("resources.requests")));
    }
    let (mut beside, mut most) = (Amounts::new(), Amounts::new());
    for container in pod_spec.maps("initContainers") {
        let mut asked = amounts(Cursor::root(container).map("resources.requests"));
        if Cursor::root(container).text("restartPolicy") == "Always" {
            add(&mut sum, &asked);
            add(&mut beside, &asked);
            asked = beside.clone();
        } else {
            add(&mut asked, &beside);
        }
        raise(&mut most, asked);
    }
    raise(&mut sum, most);
    // Requests of the Pod itself override the sum.
    sum.extend(amounts(pod_spec.map("resources.requests")));
    add(&mut sum, &amounts(pod_spec.map("overhead")));
    sum.retain(|_, amount| amount.signum() > 0);
    sum
}

/// Returns the scheduler's message for each resource that is insufficient on a Node for the requests of a Pod. A Node
/// without `allocatable` accepts every Pod.
pub(crate) fn lacking(asked: &Amounts, node: &Object, load: Option<&Load>) -> Vec<String> {
    let room = allocatable(node);
    if room.is_empty() {
        return Vec::new();
    }
    let pods = i64::try_from(load.map_or(0, |it| it.pods)).unwrap_or(i64::MAX);
    let is_full = room.get("pods").is_some_and(|most| pods >= most.value());
    let fits = |(name, amount): &(&String, &Quantity)| {
        let Some(room) = room.get(*name) else { return false };
        let taken = load.and_then(|it| it.asked.get(*name));
        taken.map_or(**amount, |taken| taken.add(amount)) <= *room
    };
    let lacking = asked.iter().filter(|it| !fits(it));
    let full = is_full.then(|| "Too many pods".to_owned());
    full.into_iter()
        .chain(lacking.map(|(name, _)| format!("Insufficient {name}")))
        .collect()
}

/// Returns `true` if a Node is too small for the requests of a Pod, even without other Pods.
pub(crate) fn never_fits(asked: &Amounts, node: &Object) -> bool {
    let room = allocatable(node);
    !room.is_empty() && asked.keys().any(|name| exceeds(asked, &room, name))
}

/// Returns the resources that a Node has for Pods; empty if its status does not contain them.
pub(crate) fn allocatable(node: &Object) -> Amounts {
    amounts(Cursor::root(node).map("status.allocatable"))
}

/// Returns `true` if the requested amount of a resource is greater than the free amount. A resource without an entry in
/// `room` does not exist on the Node.
pub(crate) fn exceeds(asked: &Amounts, room: &Amounts, name: &str) -> bool {
    match (asked.get(name), room.get(name)) {
        (Some(asked), Some(room)) => asked > room,
        (Some(asked), None) => asked.signum() > 0,
        (None, _) => false,
    }
}

/// Returns an amount as the kubelet prints it: in milli-CPUs for `cpu`, otherwise unchanged.
pub(crate) fn kubelet_amount(amounts: &Amounts, name: &str) -> i64 {
    let value = |it: &Quantity| match name {
        "cpu" => it.milli_value(),
        _ => it.value(),
    };
    amounts.get(name).map_or(0, value)
}

fn amounts(map: Option<&Map>) -> Amounts {
    let amount = |value: &Value| match value {
        Value::String(text) => Quantity::parse(text).ok(),
        other => Some(Quantity::from_int(other.as_i64()?)),
    };
    let entries = map.into_iter().flatten();
    entries
        .filter_map(|(name, value)| Some((name.to_string(), amount(value)?)))
        .collect()
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let entry = sum.entry(name.clone()).or_insert_with(|| Quantity::from_int(0));
        *entry = entry.add(amount);
    }
}

fn raise(sum: &mut Amounts, other: Amounts) {
    for (name, amount) in other {
        let entry = sum.entry(name).or_insert(amount);
        *entry = (*entry).max(amount);
    }
}
