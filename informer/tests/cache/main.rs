//! Tests of caches and handlers through their public API, with a cluster and with a scripted server.

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
