//! `Sharding`: the public handle.

use std::fmt;
use std::sync::Arc;

use super::config::ShardingConfig;
use super::core::Core;
use super::figures::Figures;
use super::keys::{Places, ShardKeys};
use super::member::Member;
use super::member_lease::MemberLease;
use super::view::place_of;
use crate::Error;
use crate::metrics::Collect;
use crate::queue::WorkQueue;
use crate::runtime::manager::Manager;
use crate::runtime::request_key::RequestKey;

/// Lease durations for which a replica remembers the keys of others.
const MEMORY: u32 = 4;

/// Shares the keys of controllers between replicas: one replica works on each key, and a replica that joins, leaves,
/// crashes or is disconnected only moves its own share of the keys. Clones share one membership.
///
/// Every replica finds the others by their Leases: its account needs all verbs on Leases in the namespace except
/// `deletecollection`. The owner of a key is a function of its text and the members (rendezvous hashing), the same for
/// all controllers of a `Sharding`. No two replicas work on one key at a time:
///
/// - A key moves to another replica after the work on it has ended: its old owner then releases it in its Lease, and
///   the new owner waits for this. A reconcile that does not end delays only its own key, and is dropped after the
///   [`hand_over_timeout`](ShardingConfig::hand_over_timeout). The metrics `sharding_handing_over_keys` and
///   `sharding_awaited_keys` count such keys, and [`check`](Self::check) lists them.
/// - The keys of a replica that crashed are taken over when its Lease expires, after 15 to 20 s.
/// - A replica that cannot renew its Lease stops after 10 s: its reconciles are dropped at their next `.await`, and
///   writes through [`Manager::client`] are refused. A write already sent may still arrive, as with leader election.
///
/// A replica works at once on a key that it takes over, as after a start. Its cache may be older than the previous
/// owner's last write. As after a change of leaders, write objects with their resourceVersion, and derive the names of
/// created objects from the owner's name.
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
    /// Joins while the manager runs. When the manager stops, the keys of this replica move to the others.
    ///
    /// # Errors
    ///
    /// If the lease duration is not in whole seconds and at least a second longer than the renew deadline, the renew
    /// deadline is shorter than twice the retry period, the retry period is zero, a name is invalid, the manager
    /// already has a `Sharding` of this name, or it has stopped.
    pub fn new(manager: &Manager, config: ShardingConfig) -> Result<Self, Error> {
        config.validate()?;
        let me = Arc::from(config.identity.as_str());
        let core = Arc::new(Core::new(&me, config.hand_over_timeout));
        let figures = Arc::new(Figures::new(&config.name, &core));
        let lease = MemberLease::new(&manager.client(), &config, manager.clock());
        manager.add(Member::new(&config, &core, lease, &figures))?;
        let collector: Arc<dyn Collect> = Arc::clone(&figures) as Arc<dyn Collect>;
        manager.metrics().register(&collector);
        let check = format!("sharding-{}", config.name);
        let this = Self {
            config: Arc::new(config),
            core,
        };
        let checked = this.clone();
        manager.add_readyz(&check, move || Ok(checked.check()?));
        Ok(this)
    }

    /// Returns the identity of this replica.
    pub fn identity(&self) -> &str {
        &self.config.identity
    }

    /// Returns the members by name, in the view of this replica; empty before it has joined.
    pub fn members(&self) -> Vec<String> {
        self.core.permission().target.names()
    }

    /// Returns `true` if this replica may work on a key now.
    pub fn is_mine(&self, key: &(impl fmt::Display + ?Sized)) -> bool {
        self.core.permits(place_of(key))
    }

    /// Returns the owner of a key, in the view of this replica.
    pub fn owner(&self, key: &(impl fmt::Display + ?Sized)) -> Option<String> {
        self.core.permission().target.owner(place_of(key)).map(str::to_owned)
    }

    /// Fails if a key has been changing hands for longer than the
    /// [`hand_over_timeout`](ShardingConfig::hand_over_timeout) plus a lease duration: a reconcile blocks its thread,
    /// or another replica does not release keys. Fails as well if this replica has had no valid Lease for that time,
    /// because the server refuses its writes or does not answer them. [`new`](Self::new) adds this check to the
    /// manager's `/readyz` as `sharding-NAME`.
    ///
    /// # Errors
    ///
    /// See above. The error names the keys and the replicas that hold them.
    pub fn check(&self) -> Result<(), Error> {
        self.core.check(self.config.lease_duration)
    }

    /// Returns the number of times that this replica did not renew its Lease in time.
    pub fn lapses(&self) -> u64 {
        self.core.lapses()
    }

    /// Returns the keys of a controller.
    pub(crate) fn keys<R: RequestKey>(&self, places: Places<R>, queue: &WorkQueue<R>) -> Arc<ShardKeys<R>> {
        ShardKeys::new(&self.core, places, queue, self.config.lease_duration * MEMORY)
    }
}
