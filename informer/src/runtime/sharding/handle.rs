//! `Sharding`: the public handle.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::config::ShardingConfig;
use super::core::Core;
use super::keys::ShardKeys;
use super::member::Member;
use super::member_lease::MemberLease;
use super::permission::Permission;
use super::view::place_of;
use crate::Error;
use crate::metrics::{Collect, Samples};
use crate::queue::WorkQueue;
use crate::runtime::controller_builder::RequestKey;
use crate::runtime::manager::Manager;

/// Lease durations for which a replica remembers the keys of others.
const MEMORY: u32 = 4;

/// Shares the keys of controllers between replicas: one replica works on each key, and a replica that joins, leaves,
/// crashes or is cut off moves its own share of the keys only. Clones share one membership.
///
/// Every replica finds the others by their Leases: its account needs all verbs on Leases in the namespace except
/// `deletecollection`. The owner of a key is a function of its text and the members (rendezvous hashing), the same for
/// all controllers of a `Sharding`. No two replicas work on one key at a time:
///
/// - A key changes hands after the work on it has ended: its old owner then gives it up in its Lease, and the new owner
///   waits for that. A reconcile that never ends delays the hand-over; see
///   [`reconcile_timeout`](crate::runtime::ControllerBuilder::reconcile_timeout).
/// - The keys of a replica that crashed are taken over when its Lease expires, after 15 to 20 s.
/// - A replica that cannot renew its Lease stops after 10 s: its reconciles are dropped at their next `.await`, and
///   writes through [`Manager::client`] are refused. A write already sent may still arrive, as with leader election.
///
/// A replica works on a key that it takes over at once, as after a start. Its cache may be older than the previous
/// owner's last write: as after a change of leaders, write objects with their resourceVersion, and derive the names of
/// created objects from their owner's.
///
/// ```
/// use informer::reconcile::{Action, ReconcileError, Request};
/// use informer::runtime::{Manager, Sharding, ShardingConfig};
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// # async fn run(client: kube::Client, pod_name: &str) -> Result<(), informer::Error> {
/// let manager = Manager::new(client);
/// let sharding = Sharding::new(&manager, ShardingConfig::new("shop", "web", pod_name))?;
/// manager.controller("web").for_::<ConfigMap>().sharded(&sharding).complete(|request: Request| async move {
///     println!("{} is for this replica", request.key);
///     Ok::<_, ReconcileError>(Action::await_change())
/// })?;
/// manager.run(std::future::pending()).await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Sharding {
    config: Arc<ShardingConfig>,
    core: Arc<Core>,
}

impl Sharding {
    /// Joins while the manager runs; when it stops, the keys of this replica go to the others.
    ///
    /// # Errors
    ///
    /// If the times do not satisfy lease duration > renew deadline ≥ twice the retry period, a name is invalid, the
    /// manager already has a `Sharding` of this name, or it has stopped.
    pub fn new(manager: &Manager, config: ShardingConfig) -> Result<Self, Error> {
        config.validate()?;
        let me = Arc::from(config.identity.as_str());
        let core = Arc::new(Core::new(&me));
        let figures = Arc::new(Figures::new(&config.name, &core));
        let lease = MemberLease::new(&manager.client(), &config, manager.clock());
        manager.add(Member::new(&config, &core, lease, &figures))?;
        let collector: Arc<dyn Collect> = Arc::clone(&figures) as Arc<dyn Collect>;
        manager.metrics().register(&collector);
        Ok(Self {
            config: Arc::new(config),
            core,
        })
    }

    /// Returns the identity of this replica.
    pub fn identity(&self) -> &str {
        &self.config.identity
    }

    /// Returns the members by name, as this replica sees them; empty before it has joined.
    pub fn members(&self) -> Vec<String> {
        self.core.permission().target.names()
    }

    /// Returns `true` if this replica may work on a key now.
    pub fn is_mine(&self, key: &(impl fmt::Display + ?Sized)) -> bool {
        self.core.permits(place_of(key))
    }

    /// Returns the owner of a key, as this replica sees it.
    pub fn owner(&self, key: &(impl fmt::Display + ?Sized)) -> Option<String> {
        self.core.permission().target.owner(place_of(key)).map(str::to_owned)
    }

    /// Returns how many times this replica did not renew its Lease in time.
    pub fn lapses(&self) -> u64 {
        self.core.lapses()
    }

    /// Returns the keys of a controller.
    pub(crate) fn keys<R: RequestKey>(&self, place: fn(&R) -> u64, queue: &WorkQueue<R>) -> Arc<ShardKeys<R>> {
        ShardKeys::new(&self.core, place, queue, self.config.lease_duration * MEMORY)
    }
}

/// Metrics of a replica.
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
    fn new(name: &str, core: &Arc<Core>) -> Self {
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

    fn now(&self) -> std::sync::MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collect for Figures {
    fn collect(&self, samples: &mut Samples) {
        let (now, labels) = (*self.now(), &[("name", self.name.as_str())]);
        let help = "Members that share the keys, as this replica sees them.";
        samples.gauge("sharding_members", help, labels, now.members as f64);
        let help = "Number of times this replica published other members.";
        samples.counter("sharding_changes_total", help, labels, now.changes as f64);
        let help = "Number of times this replica did not renew its lease in time.";
        samples.counter("sharding_lapses_total", help, labels, self.core.lapses() as f64);
    }
}
