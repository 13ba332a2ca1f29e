//! Sharding: distributes the keys of controllers among replicas.
//!
//! Each replica has a Lease, in which it publishes its view of the members. The view claims the keys that the replica
//! owns according to this view. Owners are determined by rendezvous hashing ([`view`]), so that a member that joins or
//! leaves only moves its own share of the keys. Three rules prevent two replicas from working on the same key, even if
//! their caches are outdated:
//!
//! - A claim is valid once the replica's cache of Leases contains it, together with all earlier claims. If two replicas
//!   claim the same key, the later replica observes the claim of the earlier replica and waits.
//! - A claim to a key is released only after work on the key has ended. While a replica is still working on keys that
//!   have moved, its Lease lists these keys; all other keys move immediately. Such work is aborted after a time limit.
//!   A reconcile that does not end therefore blocks only its own key, and only until this limit.
//! - A claim expires with its Lease. For the holder, the claim expires one renew deadline after the last renewal was
//!   sent. For other replicas, it expires one lease duration after they observed the renewal, provided that they have
//!   also observed a renewal of their own Lease that they sent after that time. The renew deadline is shorter than the
//!   lease duration.
//!
//! A Lease contains a random part in addition to the identity, and therefore belongs to a single process. Another
//! process with the same identity waits until the Lease expires.

mod config;
mod view;
mod permission;
mod core;
mod keys;
mod peers;
mod member_lease;
mod figures;
mod member;
mod handle;

pub use config::ShardingConfig;
pub use handle::Sharding;
pub(super) use keys::{Places, ShardKeys};
