//! `Sharding`: what a user holds of it.

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

/// For so many lease durations a replica remembers keys that were for others.
const MEMORY: u32 = 4;

/// Shares the keys of controllers between the replicas of a process: each key is worked on by one of them, and a
/// replica that comes, goes, crashes or is cut off moves its own share of the keys only. Copies are the same.
///
/// Every replica has a Lease, by which it finds the others: its account needs all verbs on Leases in the namespace but
/// `deletecollection`. Whom a key belongs to is a function of its text and of the members alone (rendezvous hashing),
/// the same for all controllers that share it. No two replicas work on one key at a time:
///
/// - Keys change hands when the work on them has ended: who gives them up says so in its Lease, and until then the new
///   owner waits. A reconcile that never ends holds up the change of its replica's keys; see
///   [`reconcile_timeout`](crate::runtime::ControllerBuilder::reconcile_timeout).
/// - A replica that crashed is followed when its Lease ends, after 15 to 20 s.
/// - A replica that cannot renew its Lease stops after 10 s: reconciles under way are dropped where they wait, and what
///   they would write by [`Manager::client`] is refused. A write that is on its way by then may still arrive, as with a
///   leader election.
///
/// A key that comes to a replica is worked on at once, as after a start. Its cache may be older than the last write of
/// the replica before: as with a change of leaders, objects are to be written with their version, and created by names
/// that are a function of their owner's.
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
    /// Takes part from when the manager runs until it stops; what this replica had goes to the others then.
    ///
    /// # Errors
    ///
    /// If the times do not fit together (lease duration > renew deadline ≥ twice the retry period), a name is not one,
    /// the manager shares something of this name already, or it has stopped.
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

    /// The name of this replica.
    pub fn identity(&self) -> &str {
        &self.config.identity
    }

    /// The replicas that share the keys, as this one sees it, by name; none before it takes part.
    pub fn members(&self) -> Vec<String> {
        self.core.permission().target.names()
    }

    /// True if this replica may work on a key now.
    pub fn is_mine(&self, key: &(impl fmt::Display + ?Sized)) -> bool {
        self.core.permits(place_of(key))
    }

    /// The member a key belongs to, as this replica sees it.
    pub fn owner(&self, key: &(impl fmt::Display + ?Sized)) -> Option<String> {
        self.core.permission().target.owner(place_of(key)).map(str::to_owned)
    }

    /// The number of times this replica could not renew its Lease in time.
    pub fn lapses(&self) -> u64 {
        self.core.lapses()
    }

    /// The keys of a controller.
    pub(crate) fn keys<R: RequestKey>(&self, place: fn(&R) -> u64, queue: &WorkQueue<R>) -> Arc<ShardKeys<R>> {
        ShardKeys::new(&self.core, place, queue, self.config.lease_duration * MEMORY)
    }
}

/// The figures of a replica.
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
        let help = "Replicas that share the keys, as this one sees it.";
        samples.gauge("sharding_members", help, labels, now.members as f64);
        let help = "How often this replica said anew which keys it claims.";
        samples.counter("sharding_changes_total", help, labels, now.changes as f64);
        let help = "How often this replica could not renew its lease in time.";
        samples.counter("sharding_lapses_total", help, labels, self.core.lapses() as f64);
    }
}
