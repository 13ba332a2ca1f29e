//! `MemberLease`: the Lease by which a replica takes part, and what it says.

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

/// The label by which replicas find each other; its value says what they share.
const LABEL: &str = "informer.drydock.dev/sharding";

/// The annotation in which a replica says by which members it goes.
const MEMBERS: &str = "informer.drydock.dev/members";

/// The Lease of this replica.
pub(super) struct MemberLease {
    client: Client,
    api: Api<Lease>,
    config: ShardingConfig,
    clock: Clock,
    name: String,
    /// As it was last written or read.
    held: Option<Lease>,
}

impl MemberLease {
    pub(super) fn new(client: &Client, config: &ShardingConfig, clock: Clock) -> Self {
        Self {
            client: client.clone(),
            api: Api::namespaced(client.clone(), &config.namespace),
            config: config.clone(),
            clock,
            // An identity need not be a name of an object.
            name: format!("{}-{:016x}", config.name, place_of(&config.identity)),
            held: None,
        }
    }

    /// The Leases of all replicas.
    pub(super) fn all(&self) -> ApiListWatch {
        let source = ApiListWatch::namespaced::<Lease>(self.client.clone(), &self.config.namespace, &());
        source.labels(&format!("{LABEL}={}", self.config.name))
    }

    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.config.namespace, &self.name)
    }

    /// It is not as it was: it is read before it is written next.
    pub(super) fn forget(&mut self) {
        self.held = None;
    }

    /// True if there may be one.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Renews it, saying this; answers with its state.
    pub(super) async fn say(&mut self, view: &View) -> Result<&Lease, Error> {
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

    /// Says that nothing is claimed any more. The Lease stays for others to [sweep](Self::sweep): one that goes without
    /// having been seen in this state is taken for that of a replica that goes on.
    pub(super) async fn give_up(&mut self) -> Result<(), Error> {
        let lease = match self.held.take() {
            Some(lease) => Some(lease),
            None => self.api.get_opt(&self.name).await?,
        };
        // Another process may have come under this name.
        let Some(lease) = lease.filter(|it| holder(it) == Some(&self.config.identity)) else {
            return Ok(());
        };
        let claim = Claim::of(&lease).released(&self.clock);
        self.replace(lease, &claim, &View::none()).await?;
        Ok(())
    }

    /// Deletes the Lease of a replica that is no more.
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

/// The holder of a Lease; `None` if it was given up.
pub(super) fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref();
    holder.filter(|it| !it.is_empty())
}

/// The time it counts after it was renewed.
pub(super) fn lasts(lease: &Lease) -> Duration {
    Claim::of(lease).duration()
}

/// By which members its holder goes.
pub(super) fn view(lease: &Lease) -> View {
    let annotations = lease.metadata.annotations.as_ref();
    View::read(annotations.and_then(|it| it.get(MEMBERS)).map(String::as_str))
}
