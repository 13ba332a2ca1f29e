//! The cache and its handlers, by their public names: against a cluster, and against a server that follows a script.

mod support;
mod script;
mod lists;
mod watches;
mod streaming;
mod silence;
mod shared;
mod handlers;
mod resync;
mod sources;
mod unreadable;
mod malformed;
mod random;
