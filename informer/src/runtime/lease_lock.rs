//! `LeaseLock`: a Lease that one of several processes holds.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};

use crate::Error;

/// The Lease by which a leader is elected: `coordination.k8s.io/v1`, as all of Kubernetes uses it.
///
/// The other kinds of locks that client-go once had (Endpoints, ConfigMaps, and two at a time) are left out, as there.
#[derive(Clone, Debug)]
pub struct LeaseLock {
    api: Api<Lease>,
    namespace: String,
    name: String,
    labels: BTreeMap<String, String>,
}

/// The content of a Lease, and nothing else of it: two that are equal are the same claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Claim(LeaseSpec);

impl LeaseLock {
    /// The Lease of this namespace and name. The first candidate creates it.
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            labels: BTreeMap::new(),
        }
    }

    /// The Lease bears these labels (`LeaderElectionLabels`): who takes or renews it sets those that differ, and leaves
    /// others alone.
    #[must_use]
    pub fn labels<'a>(mut self, labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let labels = labels
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.labels.extend(labels);
        self
    }

    /// Namespace and name.
    pub fn describe(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The name of the Lease.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The Lease as it is; `None` if there is none.
    pub(super) async fn get(&self) -> Result<Option<Lease>, Error> {
        Ok(self.api.get_opt(&self.name).await?)
    }

    pub(super) async fn create(&self, claim: &Claim) -> Result<Lease, Error> {
        let mut lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(claim.0.clone()),
        };
        self.label(&mut lease);
        Ok(self.api.create(&PostParams::default(), &lease).await?)
    }

    /// Writes the claim into the Lease, if that is still as it was read.
    pub(super) async fn update(&self, mut lease: Lease, claim: &Claim) -> Result<Lease, Error> {
        claim.write(&mut lease);
        self.label(&mut lease);
        Ok(self.api.replace(&self.name, &PostParams::default(), &lease).await?)
    }

    fn label(&self, lease: &mut Lease) {
        if !self.labels.is_empty() {
            let labels = lease.metadata.labels.get_or_insert_default();
            labels.extend(self.labels.clone());
        }
    }
}

impl Claim {
    pub(super) fn of(lease: &Lease) -> Self {
        Self(lease.spec.clone().unwrap_or_default())
    }

    pub(super) fn write(&self, lease: &mut Lease) {
        lease.spec = Some(self.0.clone());
    }

    /// A claim of `holder`, which took it or renewed it now.
    pub(super) fn new(holder: &str, duration: Duration, now: &crate::Clock, before: Option<&Self>) -> Self {
        let mut claim = before.cloned().unwrap_or_default();
        let is_renewed = claim.holder() == Some(holder);
        let seconds = i32::try_from(duration.as_secs()).unwrap_or(i32::MAX);
        claim.0.lease_duration_seconds = Some(seconds.max(1));
        claim.0.renew_time = Some(now.micro_time());
        if !is_renewed {
            claim.0.holder_identity = Some(holder.to_owned());
            claim.0.acquire_time = Some(now.micro_time());
            let transitions = claim.0.lease_transitions.unwrap_or_default();
            claim.0.lease_transitions = Some(transitions.saturating_add(i32::from(before.is_some())));
        }
        claim
    }

    /// Returns the claim given up: without a holder, and expiring in a second.
    pub(super) fn released(&self, now: &crate::Clock) -> Self {
        let mut claim = self.clone();
        claim.0.holder_identity = Some(String::new());
        claim.0.lease_duration_seconds = Some(1);
        claim.0.renew_time = Some(now.micro_time());
        claim.0.acquire_time = Some(now.micro_time());
        claim
    }

    /// Returns the holder; `None` if it was given up.
    pub(super) fn holder(&self) -> Option<&str> {
        self.0.holder_identity.as_deref().filter(|it| !it.is_empty())
    }

    pub(super) fn duration(&self) -> Duration {
        let seconds = self.0.lease_duration_seconds.unwrap_or_default();
        Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    }
}
