//! The cache and its handlers, through their public API: against a cluster, and against a scripted server.

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
