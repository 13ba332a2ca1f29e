//! `MemberLease`: the Lease of a replica, in which it publishes its view of the members.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams, Preconditions};

use super::config::ShardingConfig;
use super::peers::Ended;
use super::view::{View, place_of};
use crate::runtime::lease_lock::Claim;
use crate::{Clock, Error, ObjectKey, cache::ApiListWatch};

/// Label by which replicas find each other; its value is the name of the group.
const LABEL: &str = "informer.drydock.dev/sharding";

/// Annotation with the members that a replica sees.
const MEMBERS: &str = "informer.drydock.dev/members";

/// Lease of this replica.
pub(super) struct MemberLease {
    client: Client,
    api: Api<Lease>,
    config: ShardingConfig,
    clock: Clock,
    name: String,
    /// State last written or read.
    held: Option<Lease>,
}

impl MemberLease {
    pub(super) fn new(client: &Client, config: &ShardingConfig, clock: Clock) -> Self {
        Self {
            client: client.clone(),
            api: Api::namespaced(client.clone(), &config.namespace),
            config: config.clone(),
            clock,
            // An identity need not be a valid object name.
            name: format!("{}-{:016x}", config.name, place_of(&config.identity)),
            held: None,
        }
    }

    /// Returns the source of the Leases of all replicas.
    pub(super) fn all(&self) -> ApiListWatch {
        let source = ApiListWatch::namespaced::<Lease>(self.client.clone(), &self.config.namespace, &());
        source.labels(&format!("{LABEL}={}", self.config.name))
    }

    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.config.namespace, &self.name)
    }

    /// Forgets the state, which may be stale: the next write reads it first.
    pub(super) fn forget(&mut self) {
        self.held = None;
    }

    /// Returns `true` if the Lease may exist.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Renews the Lease with this view; returns its new state.
    pub(super) async fn publish(&mut self, view: &View) -> Result<&Lease, Error> {
        let claim = |before: Option<&Claim>| {
            let config = &self.config;
            Claim::new(&config.identity, config.lease_duration, &self.clock, before)
        };
        let lease = match self.held.take() {
            Some(lease) => Some(lease),
            None => self.api.get_opt(&self.name).await?,
        };
        let lease = match lease {
            Some(lease) => {
                let claim = claim(Some(&Claim::of(&lease)));
                self.replace(lease, &claim, view).await?
            }
            None => {
                let mut lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(self.name.clone()),
                        namespace: Some(self.config.namespace.clone()),
                        ..ObjectMeta::default()
                    },
                    spec: None,
                };
                self.fill(&mut lease, &claim(None), view);
                self.api.create(&PostParams::default(), &lease).await?
            }
        };
        Ok(self.held.insert(lease))
    }

    /// Gives up all claims. The Lease stays for others to [sweep](Self::sweep): if it were deleted
    /// before they have seen this state, they would have to assume that the replica still works.
    pub(super) async fn give_up(&mut self) -> Result<(), Error> {
        let lease = match self.held.take() {
            Some(lease) => Some(lease),
            None => self.api.get_opt(&self.name).await?,
        };
        // Another process may have taken this identity.
        let Some(lease) = lease.filter(|it| holder(it) == Some(&self.config.identity)) else {
            return Ok(());
        };
        let claim = Claim::of(&lease).released(&self.clock);
        self.replace(lease, &claim, &View::none()).await?;
        Ok(())
    }

    /// Deletes the expired Lease of another replica.
    pub(super) async fn sweep(&self, ended: &Ended) -> Result<(), Error> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(ended.uid.clone()),
                resource_version: Some(ended.version.to_string()),
            }),
            ..DeleteParams::default()
        };
        self.api.delete(&ended.name, &parameters).await?;
        Ok(())
    }

    async fn replace(&self, mut lease: Lease, claim: &Claim, view: &View) -> Result<Lease, Error> {
        self.fill(&mut lease, claim, view);
        Ok(self.api.replace(&self.name, &PostParams::default(), &lease).await?)
    }

    fn fill(&self, lease: &mut Lease, claim: &Claim, view: &View) {
        claim.write(lease);
        let labels = lease.metadata.labels.get_or_insert_default();
        labels.insert(LABEL.to_owned(), self.config.name.clone());
        let annotations: &mut BTreeMap<_, _> = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(MEMBERS.to_owned(), view.write());
    }
}

/// Returns the holder of a Lease; `None` if it was given up.
pub(super) fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref();
    holder.filter(|it| !it.is_empty())
}

/// Returns the duration of a Lease, if it says one.
pub(super) fn lasts(lease: &Lease) -> Option<Duration> {
    Some(Claim::of(lease).duration()).filter(|it| !it.is_zero())
}

/// Returns the members that the holder of a Lease sees.
pub(super) fn view(lease: &Lease) -> View {
    let annotations = lease.metadata.annotations.as_ref();
    View::read(annotations.and_then(|it| it.get(MEMBERS)).map(String::as_str))
}
