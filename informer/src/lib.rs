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
//! # Objects
//!
//! A cache holds an object as the text in which it came, with `managedFields` cut out if that is asked for, and decodes
//! it for who wants it ([`Object::typed`]). That is the default ([`Storage::Encoded`]) because it was measured: see
//! `benches/README.md`. Keys, versions, labels and owners are read without decoding.
//!
//! # What the cache leaves out
//!
//! | of client-go | why |
//! |---|---|
//! | one check period that all resyncs share | each handler has its own period, kept to exactly |
//! | the watch list that waits without end for a bookmark | after a minute of silence the source is listed instead |
//! | a deletion of what the cache never had | nobody was told of the object, so nobody is told that it is gone |
//! | the detector of mutated caches | an [`Object`] cannot be changed |
//! | the detector of inconsistent watch lists | the random tests compare the cache with the server |
//! | `UndeltaStore`, `Heap`, the reflector's metrics | nothing here needs them |
//! | `MutationCache` | [`cache::Lister::reached`] waits for one's own writes |
//! | `RetryWatcher`, `Until` | a [`cache::SharedInformer`] and a handler do the same |
//! | CBOR and protobuf | the text of JSON is what is kept |
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
