//! Distributes the changes in one log to many watchers.

pub(crate) mod filter;
pub(crate) mod fanout;
pub(crate) mod replica;
pub(crate) mod watcher;

pub(crate) use fanout::Fanout;
pub(crate) use filter::{EventType, Filter, WatchScope};
pub(crate) use replica::{Horizon, Position, Replicas};
pub(crate) use watcher::{Delivery, WatchStart, Watcher};
