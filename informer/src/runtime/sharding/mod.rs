//! Sharding: the replicas of a controller share its keys.
//!
//! Each replica publishes its view of the members in its own Lease, and claims the keys that it owns in that view. The
//! owner of a key is found by rendezvous hashing ([`view`]), so a member that joins or leaves moves only its own share.
//! Three rules prevent two replicas from working on the same key, however stale their caches are:
//!
//! - A claim is valid once the replica's cache of Leases contains it, together with all earlier claims. If two replicas
//!   claim the same key, the later one observes the other's claim and waits.
//! - A claim to a key is released only after the work on the key has ended. A replica holds the moving keys that it
//!   still works on, by listing their names in its Lease; all other keys change hands at once. The work is dropped
//!   after a limit, so that a reconcile that hangs blocks only its own key, for a limited time.
//! - A claim expires with its Lease: for the holder, one renew deadline after it sent the last renewal; for the others,
//!   one lease duration after they observed it, provided that they observe their own later renewals. The former is
//!   shorter.
//!
//! A Lease belongs to one process, because it contains a random part in addition to the identity. Another process with
//! the same identity waits until the Lease expires.

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
