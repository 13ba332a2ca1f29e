//! The order in which clients observe the creation of objects, in runs without faults that failures are compared with.

use std::time::Duration;

use tokio::time::Instant;

use super::decide::{Arrival, Gate};
use super::life::{Life, Shown};
use crate::test_cluster::TEST_CLIENT;

/// Time between the arrivals of two objects, in which controllers handle the first one.
const APART: Duration = Duration::from_secs(12);

impl Gate {
    /// Returns the time until which an event for an object is held, because another object has to arrive first. `None`
    /// if the event may be delivered now.
    pub(crate) fn arrives_at(&self, life: &Life, resource: &str, shown: &Shown) -> Option<Instant> {
        if self.plan.arrivals.is_empty() || *life.client == *TEST_CLIENT {
            return None;
        }
        let object = format!("{}/{}", shown.namespace, shown.name);
        let key = format!("{resource} {}", object.trim_start_matches('/'));
        let place = self.plan.arrivals.iter().position(|it| *it == key)?;
        let now = Instant::now();
        let time = {
            let mut state = self.state();
            let before = place.checked_sub(1).and_then(|it| state.arrived.get(&it)?.told);
            let arrival = state.arrived.entry(place).or_insert(Arrival { sent: now, told: None });
            let time = match before {
                Some(before) => before + APART,
                // No client may watch the preceding object, so the event is only held for a limited time.
                None => (now + APART).min(arrival.sent + APART * place as u32),
            };
            if arrival.told.is_some() || time <= now {
                arrival.told.get_or_insert(now);
                return None;
            }
            time
        };
        // The end state must contain the work for the last object.
        self.lasts(time + APART - now);
        Some(time)
    }
}
