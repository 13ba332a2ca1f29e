//! `Sharding`: the public handle of a replica in a sharding group.

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

/// Number of lease durations for which a replica remembers keys that other replicas own.
const MEMORY: u32 = 4;

/// Distributes the keys of controllers among replicas: each key is reconciled by one replica. If a replica joins,
/// leaves, crashes or is disconnected, only its share of the keys moves. Clones refer to the same replica.
///
/// Replicas find each other by their Leases: they need permissions to get, list, watch, create, update and delete
/// Leases in the namespace. The owner of a key is determined from the string form of the key and the members by
/// rendezvous hashing, and is the same for all controllers of a `Sharding`. Two replicas do not work on the same key at
/// the same time:
///
/// - A key moves to another replica once work on the key has ended: the old owner then releases the key in its Lease,
///   and the new owner waits for this release. A reconcile that does not end only delays its own key, and is dropped
///   after the [`hand_over_timeout`](ShardingConfig::hand_over_timeout). The metrics `sharding_handing_over_keys` and
///   `sharding_awaited_keys` count such keys, `sharding_awaited_replicas` counts replicas that may hold any key, and
///   [`check`](Self::check) lists them.
/// - The keys of a crashed replica are taken over when its Lease expires; with the default options, after 15 to 20 s.
/// - A replica that cannot renew its Lease stops at the renew deadline, by default after 10 s: its reconciles are
///   dropped at their next `.await`, and their writes through [`Manager::client`] are refused. As with leader election,
///   the server may still execute a write that was already sent, and the time during which the machine was suspended is
///   not noticed before the next renewal. Tasks that a reconcile has spawned are neither dropped nor refused.
///
/// A replica immediately reconciles the keys that it takes over, as after a start. Its cache may be older than the last
/// write of the previous owner. Reconcilers should therefore write objects with their `resourceVersion`, and derive the
/// names of created objects from the names of their owners, as with leader election.
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
    /// Creates a replica, which participates while the manager is running. When the manager stops, its keys move to the
    /// other replicas.
    ///
    /// # Errors
    ///
    /// Fails if the lease duration is not in whole seconds or not at least a second longer than the renew deadline, if
    /// the renew deadline is shorter than twice the retry period, if the retry period is zero, if a name is invalid, or
    /// if the manager already has a `Sharding` with this name or has stopped.
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

    /// Returns the members of the group as this replica observes them, sorted. Returns an empty list before this
    /// replica has read the Leases of the group.
    pub fn members(&self) -> Vec<String> {
        self.core.permission().target.names()
    }

    /// Returns `true` if this replica may currently work on a key.
    pub fn is_mine(&self, key: &(impl fmt::Display + ?Sized)) -> bool {
        self.core.permits(place_of(key))
    }

    /// Returns the member that owns a key, according to the members that this replica observes.
    pub fn owner(&self, key: &(impl fmt::Display + ?Sized)) -> Option<String> {
        self.core.permission().target.owner(place_of(key)).map(str::to_owned)
    }

    /// Checks that no key takes longer to move than the [`hand_over_timeout`](ShardingConfig::hand_over_timeout) plus a
    /// lease duration. Possible causes are a reconcile that blocks its thread, or a replica that does not release its
    /// keys. Also checks that this replica has not been without a valid Lease for longer than this time, for example
    /// because the server refuses its requests or does not respond. [`new`](Self::new) adds this check to the manager's
    /// `/readyz` as `sharding-NAME`.
    ///
    /// # Errors
    ///
    /// Fails if one of these checks fails. The error lists the keys and the replicas that hold them.
    pub fn check(&self) -> Result<(), Error> {
        self.core.check(self.config.lease_duration)
    }

    /// Returns the number of times that this replica has failed to renew its Lease in time.
    pub fn lapses(&self) -> u64 {
        self.core.lapses()
    }

    /// Returns the filter that restricts a controller to the keys that this replica owns.
    pub(crate) fn keys<R: RequestKey>(&self, places: Places<R>, queue: &WorkQueue<R>) -> Arc<ShardKeys<R>> {
        ShardKeys::new(&self.core, places, queue, self.config.lease_duration * MEMORY)
    }
}
