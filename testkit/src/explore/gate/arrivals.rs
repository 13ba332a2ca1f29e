//! The order in which clients observe the creation of objects, in runs without faults that failures are compared with.

use std::time::Duration;

use tokio::time::Instant;

use super::decide::Gate;
use super::life::{Life, Shown};
use crate::test_cluster::TEST_CLIENT;

/// Time between the arrivals of two objects, in which controllers handle the first one.
const APART: Duration = Duration::from_secs(12);

/// Time since the start of the run after which no object is held. An object may never arrive, because the test did not
/// create it.
const MOST: Duration = Duration::from_secs(3600);

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
            let before = place.checked_sub(1).map(|before| state.arrived.get(&before).copied());
            // While the preceding object has not arrived, the event is checked again later.
            let time = before.map_or(now, |arrived| arrived.unwrap_or(now) + APART);
            let is_due = time <= now || now >= self.started + MOST;
            if is_due {
                state.arrived.entry(place).or_insert(now);
                return None;
            }
            time
        };
        self.lasts(time - now);
        Some(time)
    }
}
