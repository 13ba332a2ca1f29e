//! `TriggerTimes`: the time of the change that caused a write of Endpoints and EndpointSlices (Go's
//! `TriggerTimeTracker`).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::pods::{condition, created, time};
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;

/// The changes of the Pods of a Service that have been observed.
#[derive(Clone, Debug, Default)]
pub(crate) struct TriggerTimes {
    /// Set if the Service has been observed.
    is_known: bool,
    /// The last change of the readiness of each Pod, by name.
    pods: BTreeMap<String, Timestamp>,
}

impl TriggerTimes {
    /// Returns the time of the first change since the last call; the creation time of the Service on the first call;
    /// `None` if no change has a time, such as the deletion of a Pod.
    pub(crate) fn next(&mut self, service: &Object, pods: &[&Arc<Object>]) -> Option<Timestamp> {
        let changed = |pod: &&Arc<Object>| {
            let ready = condition(pod, "Ready")?;
            let at = time(Cursor::root(ready).text("lastTransitionTime"))?;
            Some((pod.name().to_owned(), at))
        };
        let now: BTreeMap<String, Timestamp> = pods.iter().filter_map(changed).collect();
        let is_later = |(name, at): &(&String, &Timestamp)| self.pods.get(*name).is_none_or(|known| *at > known);
        let first = now.iter().filter(is_later).map(|(_, at)| *at).min();
        let was_known = std::mem::replace(&mut self.is_known, true);
        self.pods = now;
        if was_known { first } else { Some(created(service)) }
    }
}
