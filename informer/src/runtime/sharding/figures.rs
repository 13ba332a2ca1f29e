//! `Figures`: metrics of a replica in a sharding group.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::core::Core;
use super::permission::Permission;
use crate::metrics::{Collect, Samples};

#[derive(Debug)]
pub(super) struct Figures {
    name: String,
    core: Arc<Core>,
    now: Mutex<Now>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Now {
    members: usize,
    changes: u64,
}

impl Figures {
    pub(super) fn new(name: &str, core: &Arc<Core>) -> Self {
        Self {
            name: name.to_owned(),
            core: Arc::clone(core),
            now: Mutex::default(),
        }
    }

    pub(super) fn note(&self, permission: &Permission) {
        self.now().members = permission.target.names().len();
    }

    pub(super) fn count_change(&self) {
        self.now().changes += 1;
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collect for Figures {
    fn collect(&self, samples: &mut Samples) {
        let (now, labels) = (*self.now(), &[("name", self.name.as_str())]);
        let help = "Members that share the keys, in the view of this replica.";
        samples.highest("sharding_members", help, labels, now.members as f64);
        let help = "Keys that this replica is still reconciling although they have moved to other replicas.";
        samples.gauge(
            "sharding_handing_over_keys",
            help,
            labels,
            self.core.handing_over() as f64,
        );
        let help = "Keys of this replica that other replicas are still reconciling.";
        let (keys, replicas) = self.core.awaited();
        samples.gauge("sharding_awaited_keys", help, labels, keys as f64);
        let help =
            "Other replicas that may hold any key of this replica, because their members differ or are unreadable.";
        samples.gauge("sharding_awaited_replicas", help, labels, replicas as f64);
        let help = "Number of changes to the member list that this replica publishes.";
        samples.counter("sharding_changes_total", help, labels, now.changes as f64);
        let help = "Number of times this replica did not renew its lease in time.";
        samples.counter("sharding_lapses_total", help, labels, self.core.lapses() as f64);
    }
}
