//! Informers and controllers for Kubernetes.
//!
//! A controller sees the cluster through a copy of it: what changes arrives as events, is kept in a cache, and becomes
//! keys that wait to be worked on. This crate is that path, in the words of client-go:
//!
//! | stage | what happens |
//! |---|---|
//! | cache | a reflector lists and watches one type; the indexer keeps its objects; listers read them |
//! | handler | a change becomes the keys of the objects it concerns |
//! | queue | keys wait for work: each once, never two workers at one key, those that failed after a pause |
//! | reconcile | a worker takes a key, compares what is with what should be, and acts |
//! | runtime | what a process needs around it: controllers that start and stop together, leader election, events |
//!
//! All layers share two words: an [`ObjectKey`] names an object, and an [`Error`] is what may go wrong.
//!
//! The library takes a `kube::Client` and knows nothing of the server behind it. It iterates in a stated order
//! everywhere, takes its jitter from a seed and its time from tokio's clock, so that two runs with one seed make the
//! same requests in the same order.

// the path of an object
pub mod cache;
pub mod handler;
pub mod queue;
pub mod reconcile;
pub mod runtime;
// what all layers share
mod key;
mod resource_version;
mod object;
mod error;
// beside the path
mod clock;
mod jitter;
mod tasks;
pub mod metrics;

pub use clock::Clock;
pub use error::Error;
pub use key::{ObjectKey, ParseKeyError};
pub use object::{Cacheable, Object, OwnerRef, Storage};
pub use resource_version::ResourceVersion;
