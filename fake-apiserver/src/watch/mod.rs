//! Distributes changes from one log to many watchers. This layer depends on storage, and not on the registry or HTTP.

pub(crate) mod filter;
pub(crate) mod fanout;
pub(crate) mod replica;
pub(crate) mod watcher;

pub(crate) use fanout::Fanout;
pub(crate) use filter::{EventType, Filter, WatchScope};
pub(crate) use replica::{Horizon, Position, Replicas};
pub(crate) use watcher::{Delivery, WatchStart, Watcher};
