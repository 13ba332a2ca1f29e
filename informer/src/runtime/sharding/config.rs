//! `ShardingConfig`: who shares, and how fast.

use std::time::Duration;

use crate::Error;

/// Longest name; it is part of the names of Leases, and a label value.
const LONGEST_NAME: usize = 40;

/// Configuration of a [`Sharding`](super::Sharding). The times are those of a leader election, with the same defaults.
#[derive(Clone, Debug)]
pub struct ShardingConfig {
    /// Namespace of the Leases.
    pub namespace: String,
    /// Name of the group, the same for all replicas; prefix of the names of the Leases.
    pub name: String,
    /// Identity of this replica; it must be unique, such as the name of the Pod.
    pub identity: String,
    /// Time without a renewal after which the others take over the keys of a replica. Default 15 s.
    pub lease_duration: Duration,
    /// Time for which a replica goes on working after its last successful renewal. Default 10 s. Each request for the
    /// Lease may take half of it, but at least a second.
    pub renew_deadline: Duration,
    /// Pause between two renewals, and after a failed request. Default 2 s.
    pub retry_period: Duration,
}

impl ShardingConfig {
    /// Returns the defaults for a replica.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    pub(super) fn validate(&self) -> Result<(), Error> {
        let is_plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
        let name = self.name.as_bytes();
        let is_edge = |it: Option<&u8>| it.is_some_and(u8::is_ascii_alphanumeric);
        let is_label = name.iter().copied().all(is_plain) && is_edge(name.first()) && is_edge(name.last());
        let fault = if self.identity.is_empty() {
            "the identity is empty"
        } else if !is_label || name.len() > LONGEST_NAME {
            "the name must be a DNS label of at most 40 characters"
        } else if self.namespace.is_empty() {
            "the namespace is empty"
        } else if self.lease_duration <= self.renew_deadline {
            "the lease duration must be longer than the renew deadline"
        } else if self.renew_deadline < self.retry_period * 2 {
            "the renew deadline must be at least twice the retry period"
        } else if self.retry_period.is_zero() {
            "the retry period is zero"
        } else if self.lease_duration.subsec_nanos() != 0 {
            "the lease duration must be whole seconds"
        } else {
            return Ok(());
        };
        Err(Error::refused(format!(
            "sharding {:?} of {:?}: {fault}",
            self.name, self.identity
        )))
    }
}
