//! `ShardingConfig`: who shares, and how fast.

use std::time::Duration;

use crate::Error;

/// The longest name: it is part of the names of Leases, and a label.
const LONGEST_NAME: usize = 40;

/// The way replicas share keys; see [`Sharding`](super::Sharding). The times are those of a leader election, with the
/// same defaults.
#[derive(Clone, Debug)]
pub struct ShardingConfig {
    /// The namespace of the Leases.
    pub namespace: String,
    /// The name of the group: the same for all replicas. The names of the Leases begin with it.
    pub name: String,
    /// The name of this process; no two may have the same.
    pub identity: String,
    /// After how long without a renewal the others take the keys of a replica. Default 15 s.
    pub lease_duration: Duration,
    /// The time a replica works after the last renewal that went well. Default 10 s. Half of it, but at least a second,
    /// is how long each request for the Lease may take.
    pub renew_deadline: Duration,
    /// The pause between two renewals, and after a request that failed. Default 2 s.
    pub retry_period: Duration,
}

impl ShardingConfig {
    /// The defaults, for this process.
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
