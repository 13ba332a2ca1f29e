//! `LeaseLock`: a Lease that at most one process holds at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};

use crate::Error;
use crate::jitter::Jitter;

/// The Lease for a leader election (`coordination.k8s.io/v1`).
///
/// Other types of locks (Endpoints, ConfigMaps, and combinations of them) are not supported; client-go has removed them
/// as well.
#[derive(Clone, Debug)]
pub struct LeaseLock {
    api: Api<Lease>,
    namespace: String,
    name: String,
    labels: BTreeMap<String, String>,
}

/// The spec of a Lease. Equal specs belong to the same claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Claim(LeaseSpec);

impl LeaseLock {
    /// Returns the lock for a Lease with this namespace and name. The first candidate creates the Lease.
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            labels: BTreeMap::new(),
        }
    }

    /// Sets labels of the Lease (controller-runtime's `LeaderElectionLabels`). Whenever a process acquires or renews
    /// the Lease, it sets these labels and keeps all other labels.
    #[must_use]
    pub fn labels<'a>(mut self, labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let labels = labels
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.labels.extend(labels);
        self
    }

    /// Returns namespace and name of the Lease, for messages.
    pub fn describe(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the name of the Lease.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the Lease. Returns `None` if it does not exist.
    pub(super) async fn get(&self) -> Result<Option<Lease>, Error> {
        Ok(self.api.get_opt(&self.name).await?)
    }

    /// Creates the Lease with the fields that `claim` sets.
    pub(super) async fn create(&self, claim: impl FnOnce(&mut Lease)) -> Result<Lease, Error> {
        let mut lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        };
        claim(&mut lease);
        self.label(&mut lease);
        Ok(self.api.create(&PostParams::default(), &lease).await?)
    }

    /// Updates the Lease with the fields that `claim` sets, unless it was changed since it was read.
    pub(super) async fn update(&self, mut lease: Lease, claim: impl FnOnce(&mut Lease)) -> Result<Lease, Error> {
        claim(&mut lease);
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

/// Identifies a process that can hold a Lease.
///
/// Two processes may have the same identity, such as the name of a Pod that was force-deleted and recreated. A random
/// part distinguishes them. controller-runtime appends a random part to the host name; here it is in an annotation, and
/// the identity remains unchanged.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    identity: String,
    token: String,
}

/// Annotation that contains the random part of the holder.
const TOKEN: &str = "informer.drydock.dev/holder";

impl Holder {
    pub(super) fn new(identity: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            token: format!("{:016x}", Jitter::unique(identity)),
        }
    }

    /// Returns `true` if this process holds the Lease; `false` if another process with the same identity does.
    pub(super) fn holds(&self, lease: &Lease) -> bool {
        let token = lease.metadata.annotations.as_ref().and_then(|it| it.get(TOKEN));
        Claim::of(lease).holder() == Some(&self.identity) && token == Some(&self.token)
    }

    /// Sets the fields of the Lease that acquire or renew it.
    pub(super) fn claim(&self, lease: &mut Lease, duration: Duration, now: &crate::Clock) {
        let (is_renewed, is_new) = (self.holds(lease), lease.spec.is_none());
        let spec = lease.spec.get_or_insert_default();
        let seconds = i32::try_from(duration.as_secs()).unwrap_or(i32::MAX);
        spec.lease_duration_seconds = Some(seconds.max(1));
        spec.renew_time = Some(now.micro_time());
        if !is_renewed {
            spec.holder_identity = Some(self.identity.clone());
            spec.acquire_time = Some(now.micro_time());
            let transitions = spec.lease_transitions.unwrap_or_default();
            spec.lease_transitions = Some(transitions.saturating_add(i32::from(!is_new)));
            let annotations = lease.metadata.annotations.get_or_insert_default();
            annotations.insert(TOKEN.to_owned(), self.token.clone());
        }
    }

    /// Sets the fields of the Lease that release it: removes the holder, and sets the duration to a second.
    pub(super) fn release(&self, lease: &mut Lease, now: &crate::Clock) {
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(now.micro_time());
        spec.acquire_time = Some(now.micro_time());
        if let Some(annotations) = &mut lease.metadata.annotations {
            annotations.remove(TOKEN);
        }
    }
}

impl Claim {
    pub(super) fn of(lease: &Lease) -> Self {
        Self(lease.spec.clone().unwrap_or_default())
    }

    /// Returns the holder; `None` if the Lease was released.
    pub(super) fn holder(&self) -> Option<&str> {
        self.0.holder_identity.as_deref().filter(|it| !it.is_empty())
    }

    pub(super) fn duration(&self) -> Duration {
        let seconds = self.0.lease_duration_seconds.unwrap_or_default();
        Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
    }
}
