//! A controller whose replicas share the keys.
//!
//! Each replica has a Lease, in which it says by which members it goes: the keys that it owns by them are what it
//! claims. The owner is found by rendezvous hashing ([`view`]), so that a member that comes or goes moves its own share
//! only. Three rules keep two replicas from working on one key, however late what they see:
//!
//! - A claim counts once the cache of Leases shows it, and with it whatever was claimed before. Of two that claim a key
//!   the later one sees the other, and waits.
//! - A claim is given up after the work on its keys has ended, and not before.
//! - A claim ends with its Lease: for its holder a renew deadline after the last renewal was sent, for the others a
//!   lease duration after they saw it, provided that they see their own later renewals. The former is the shorter.

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
