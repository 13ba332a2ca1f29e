//! `ShardingConfig`: options of a replica in a sharding group.

use std::time::Duration;

use crate::Error;

/// Maximum length of the group's name, which is a label value and a part of the names of Leases.
const LONGEST_NAME: usize = 40;

/// Minimum time between the end of one replica's permission to work on a key and the start of the next replica's
/// permission. It allows for inexact timers and requests in flight.
const LEAST_MARGIN: Duration = Duration::from_secs(1);

/// Options of a [`Sharding`](super::Sharding). The time options have the same meanings and defaults as in leader
/// election.
#[derive(Clone, Debug)]
pub struct ShardingConfig {
    /// Namespace of the Leases.
    pub namespace: String,
    /// Name of the group, which must be the same in all replicas. It is the prefix of the Leases' names.
    pub name: String,
    /// Identity of this replica, such as the name of its Pod. If several processes have the same identity, only one of
    /// them participates at a time; the next process joins once the Lease of the first process has expired or was
    /// released.
    pub identity: String,
    /// Time without a renewal after which other replicas take over the keys of this replica. Default: 15 s.
    pub lease_duration: Duration,
    /// Time for which this replica continues to work after its last successful renewal. Default: 10 s. The time limit
    /// of each request for the Lease is half of this time, but at least a second.
    pub renew_deadline: Duration,
    /// Delay between renewals, and after a failed request. Default: 2 s.
    pub retry_period: Duration,
    /// Time for which a reconcile may continue after its key has moved to a different replica. When it expires, the
    /// future is dropped and its writes are refused. Default: 60 s.
    pub hand_over_timeout: Duration,
    /// Unused. End struct literals with `..ShardingConfig::new(namespace, name, identity)`, because fields may be
    /// added.
    #[doc(hidden)]
    pub _more: (),
}

impl ShardingConfig {
    /// Returns the default options for a replica.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            hand_over_timeout: Duration::from_secs(60),
            _more: (),
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
        } else if self.lease_duration < self.renew_deadline.saturating_add(LEAST_MARGIN) {
            "the lease duration must exceed the renew deadline by at least one second"
        } else if self.renew_deadline < self.retry_period * 2 {
            "the renew deadline must be at least twice the retry period"
        } else if self.retry_period.is_zero() {
            "the retry period is zero"
        } else if self.lease_duration.subsec_nanos() != 0 {
            "the lease duration must be a whole number of seconds"
        } else {
            return Ok(());
        };
        Err(Error::refused(format!(
            "sharding {:?} of {:?}: {fault}",
            self.name, self.identity
        )))
    }
}
