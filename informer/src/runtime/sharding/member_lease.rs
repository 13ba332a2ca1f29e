//! `MemberLease`: the Lease of a replica, which contains its view of the members.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams, Preconditions};
use tokio::time::Instant;

use super::config::ShardingConfig;
use super::peers::Ended;
use super::view::{View, place_of};
use crate::runtime::lease_lock::{Claim, Holder};
use crate::{Clock, Error, ObjectKey, cache::ApiListWatch};

/// Label with which replicas find the Leases of their group. Its value is the name of the group.
const LABEL: &str = "informer.drydock.dev/sharding";

/// Annotation that contains a replica's view of the members.
const MEMBERS: &str = "informer.drydock.dev/members";

/// The Lease of this replica.
pub(super) struct MemberLease {
    client: Client,
    api: Api<Lease>,
    config: ShardingConfig,
    clock: Clock,
    name: String,
    holder: Holder,
    /// The Lease as it was last written or read.
    held: Option<Lease>,
    /// The last observed state of the Lease while another process with the same identity held it.
    stranger: Option<Stranger>,
}

/// The state of a Lease that another process holds.
struct Stranger {
    state: (Option<String>, Option<String>),
    lasts: Duration,
    /// Time at which this state was first observed.
    seen: Instant,
}

impl MemberLease {
    pub(super) fn new(client: &Client, config: &ShardingConfig, clock: Clock) -> Self {
        Self {
            client: client.clone(),
            api: Api::namespaced(client.clone(), &config.namespace),
            config: config.clone(),
            clock,
            // The identity is hashed, because it may not be a valid object name.
            name: format!("{}-{:016x}", config.name, place_of(&config.identity)),
            holder: Holder::new(&config.identity),
            held: None,
            stranger: None,
        }
    }

    /// Returns a source for the Leases of all replicas in the group.
    pub(super) fn all(&self) -> ApiListWatch {
        let source = ApiListWatch::namespaced::<Lease>(self.client.clone(), &self.config.namespace, &());
        source.labels(&format!("{LABEL}={}", self.config.name))
    }

    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.config.namespace, &self.name)
    }

    /// Drops the known state of the Lease, which may be outdated, so that the next write reads the Lease first.
    pub(super) fn forget(&mut self) {
        self.held = None;
    }

    /// Returns `true` if the state of the Lease is known.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Writes the Lease with this view, which also renews it. Returns its new state.
    pub(super) async fn publish(&mut self, view: &View) -> Result<&Lease, Error> {
        let lease = match self.held.take() {
            Some(lease) => Some(lease),
            None => {
                let asked = Instant::now();
                let lease = self.api.get_opt(&self.name).await?;
                self.check_free(lease.as_ref(), asked)?;
                lease
            }
        };
        let lease = match lease {
            Some(mut lease) => {
                self.fill(&mut lease, view);
                self.api.replace(&self.name, &PostParams::default(), &lease).await?
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
                self.fill(&mut lease, view);
                self.api.create(&PostParams::default(), &lease).await?
            }
        };
        Ok(self.held.insert(lease))
    }

    /// Returns `true` if this process holds the Lease; `false` if another process with the same identity does.
    pub(super) fn is_own(&self, lease: &Lease) -> bool {
        self.holder.holds(lease)
    }

    /// Checks that the Lease is not held by another process with the same identity. `asked` is the time at which the
    /// request that read the Lease was sent. A holder renews its Lease, so the Lease is free if it has not changed for
    /// longer than its duration. The same applies if the Lease was deleted manually while another process held it.
    fn check_free(&mut self, lease: Option<&Lease>, asked: Instant) -> Result<(), Error> {
        if lease.is_some_and(|it| holder(it).is_none() || self.is_own(it)) {
            self.stranger = None;
            return Ok(());
        }
        if let Some(lease) = lease {
            let metadata = &lease.metadata;
            let state = (metadata.uid.clone(), metadata.resource_version.clone());
            if self.stranger.as_ref().is_none_or(|it| it.state != state) {
                self.stranger = Some(Stranger {
                    state,
                    lasts: lasts(lease).unwrap_or(self.config.lease_duration),
                    seen: Instant::now(),
                });
            }
        }
        match &self.stranger {
            Some(it) if it.seen + it.lasts > asked => Err(Error::refused(format!(
                "lease {}: another process with the identity {:?} holds it",
                self.key(),
                self.config.identity
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Releases the Lease with an empty view. The Lease is not deleted, because other replicas must observe the empty
    /// view; otherwise they would assume that this replica may still be working. Another replica [deletes](Self::sweep)
    /// the Lease later.
    pub(super) async fn give_up(&mut self) -> Result<(), Error> {
        let lease = match self.held.take() {
            Some(lease) => Some(lease),
            None => self.api.get_opt(&self.name).await?,
        };
        // Another process with the same identity may have taken over the Lease.
        let Some(mut lease) = lease.filter(|it| self.is_own(it)) else {
            return Ok(());
        };
        self.fill(&mut lease, &View::none());
        self.holder.release(&mut lease, &self.clock);
        self.api.replace(&self.name, &PostParams::default(), &lease).await?;
        Ok(())
    }

    /// Deletes an expired Lease of another replica, if it has not changed.
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

    fn fill(&self, lease: &mut Lease, view: &View) {
        self.holder.claim(lease, self.config.lease_duration, &self.clock);
        let labels = lease.metadata.labels.get_or_insert_default();
        labels.insert(LABEL.to_owned(), self.config.name.clone());
        let annotations: &mut BTreeMap<_, _> = lease.metadata.annotations.get_or_insert_default();
        annotations.insert(MEMBERS.to_owned(), view.write());
    }
}

/// Returns the holder of a Lease; `None` if it was released.
pub(super) fn holder(lease: &Lease) -> Option<&str> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref();
    holder.filter(|it| !it.is_empty())
}

/// Returns the duration of a Lease; `None` if it is not set.
pub(super) fn lasts(lease: &Lease) -> Option<Duration> {
    Some(Claim::of(lease).duration()).filter(|it| !it.is_zero())
}

/// Returns the view in the annotation of a Lease.
pub(super) fn view(lease: &Lease) -> View {
    let annotations = lease.metadata.annotations.as_ref();
    View::read(annotations.and_then(|it| it.get(MEMBERS)).map(String::as_str))
}
