//! Sharding: the replicas of a controller share its keys.
//!
//! Each replica publishes its view of the members in a Lease of its own, and claims the keys that it owns in that view.
//! The owner of a key is found by rendezvous hashing ([`view`]), so that a member that joins or leaves moves its own
//! share only. Three rules keep two replicas from working on one key, however stale their caches are:
//!
//! - A claim is valid once the replica's cache of Leases shows it, together with all earlier claims. Of two replicas
//!   that claim a key, the later one sees the other's claim and waits.
//! - A claim is given up only after the work on its keys has ended.
//! - A claim expires with its Lease: for the holder one renew deadline after it sent the last renewal, for the others
//!   one lease duration after they saw it, provided that they see their own later renewals. The former is shorter.

mod config;
mod view;
mod permission;
mod core;
mod keys;
mod peers;
mod member_lease;
mod member;
mod handle;

pub use config::ShardingConfig;
pub use handle::Sharding;
pub(super) use keys::ShardKeys;
pub(super) use view::place_of;
