//! Requests of Pods against what a Node has left (`NodeResourcesFit` of the scheduler).

use std::collections::BTreeMap;

use super::pods::spec;
use crate::api::json::{Map, Value};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;
use crate::registry::types::quantity::Quantity;

/// Amounts of resources by their names.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// Load of one Node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    /// The Pods on it that have not ended.
    pub(crate) pods: usize,
    /// The sum of their requests.
    asked: Amounts,
}

impl Load {
    /// Counts a Pod.
    pub(crate) fn add(&mut self, pod: &Object) {
        self.pods += 1;
        add(&mut self.asked, &requests(pod));
    }

    /// Stops counting a Pod.
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
/// or, if that is more, of an init container and the sidecars that were started before it.
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
    // Requests at the level of the Pod replace the sum.
    sum.extend(amounts(pod_spec.map("resources.requests")));
    add(&mut sum, &amounts(pod_spec.map("overhead")));
    sum.retain(|_, amount| amount.signum() > 0);
    sum
}

/// Returns the resources of which a Node has too little left, in the scheduler's words. A Node without `allocatable`
/// takes every Pod.
pub(crate) fn lacking(asked: &Amounts, node: &Object, load: Option<&Load>) -> Vec<String> {
    let room = amounts(Cursor::root(node).map("status.allocatable"));
    if room.is_empty() {
        return Vec::new();
    }
    let fits = |(name, amount): &(&String, &Quantity)| {
        let Some(room) = room.get(*name) else { return false };
        let taken = load.and_then(|it| it.asked.get(*name));
        taken.map_or(**amount, |taken| taken.add(amount)) <= *room
    };
    asked
        .iter()
        .filter(|it| !fits(it))
        .map(|(name, _)| format!("Insufficient {name}"))
        .collect()
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
