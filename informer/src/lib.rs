//! Controllers for Kubernetes: the machinery of client-go and controller-runtime, on a [`kube::Client`].
//!
//! ```
//! use std::sync::Arc;
//!
//! use informer::reconcile::{Action, ReconcileError};
//! use informer::runtime::{Manager, as_reconciler};
//! use k8s_openapi::api::core::v1::ConfigMap;
//!
//! /// What `main` runs with a client of its cluster.
//! async fn run(client: kube::Client) -> Result<(), informer::Error> {
//!     let manager = Manager::new(client);
//!     let maps = as_reconciler(manager.lister(), reconcile);
//!     manager.controller("maps").for_::<ConfigMap>().complete(maps)?;
//!     manager.run(std::future::pending()).await // until this is ready; then everything stops in order
//! }
//!
//! /// Called when a ConfigMap is there and when it changes, with what the cache has.
//! async fn reconcile(map: Arc<ConfigMap>) -> Result<Action, ReconcileError> {
//!     println!("{:?} has the labels {:?}", map.metadata.name, map.metadata.labels);
//!     Ok(Action::await_change()) // an error is tried again after a pause, which grows
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! # let cluster = testkit::TestCluster::builder().object(testkit::objects::config_map("settings")).start();
//! # let running = cluster.run(run(cluster.client()));
//! # cluster.settle().await;
//! # assert!(running.is_running());
//! # }
//! ```
//!
//! A controller sees the cluster through a copy of it: what changes arrives as events, is kept in a cache, and becomes
//! keys that wait to be worked on. This crate is that path, in the words of client-go:
//!
//! | stage | what happens |
//! |---|---|
//! | [`cache`] | a reflector lists and watches one type; the indexer keeps its objects; listers read them |
//! | [`handler`] | a change becomes the keys of the objects it concerns |
//! | [`queue`] | keys wait for work: each once, never two workers at one key, those that failed after a pause |
//! | [`reconcile`] | a worker takes a key, compares what is with what should be, and acts |
//! | [`runtime`] | what a process needs around it: controllers that start and stop together, leader election, events |
//!
//! All layers share two words: an [`ObjectKey`] names an object, and an [`Error`] is what may go wrong.
//!
//! # Objects
//!
//! A cache holds an object as the text in which it came, with `managedFields` cut out on request, and decodes
//! it for who wants it ([`Object::typed`]). That is the default ([`Storage::Encoded`]) because it was measured: see
//! `benches/README.md` in the repository. Keys, versions, labels and owners are read without decoding.
//!
//! The library knows nothing of the server behind its client. It iterates in a stated order
//! everywhere, takes its jitter from a seed and its time from tokio's clock, so that two runs with one seed make the
//! same requests in the same order. Without a seed one is drawn at random; while tokio's clock is paused, as in tests,
//! it is always the same.
//!
//! # Where to go on
//!
//! | you want | look at |
//! |---|---|
//! | a controller, and which changes it is for | [`runtime::Manager::controller`], [`runtime::ControllerBuilder`] |
//! | several, with leader election, health and metrics | [`runtime::Manager`] |
//! | to work on objects, or on keys of what may be gone | [`runtime::ObjectReconciler`], [`reconcile::Reconciler`] |
//! | to admit, default and convert objects | `webhook::Webhooks`, with the feature `webhooks` |
//! | replicas that share the keys of a controller | [`runtime::Sharding`] |
//! | several clusters under one manager | [`runtime::Clusters`] |
//! | one client that reads from caches and writes to the server | [`runtime::CachedClient`] |
//! | objects that belong to yours, made and kept as they should be | [`runtime::Dependents`] |
//! | to say how it is | [`runtime::update_status`], [`runtime::conditions`] |
//! | what a reconcile may answer, and what an error does | [`reconcile::Action`], [`reconcile::ReconcileError`] |
//! | finalizers, owners, events, retries | [`runtime`] |
//! | a cache without a controller | [`cache`] |
//! | a work queue without a cache | [`queue::WorkQueue`] |
//! | to test all that | the crate `drydock-testkit`, or [`cache::FakeSource`] without a server |
//!
//! No reconcile acts on a cache that is older than what its key's last reconcile wrote, if it wrote by
//! [`runtime::Manager::client`]; see [`reconcile::Writes`].
//!
//! # Bounds
//!
//! | what | at most | then |
//! |---|---|---|
//! | keys in a [`queue::WorkQueue`] | one entry a key | |
//! | a read of [`runtime::CachedClient`] that waits for its own write | 30 s | it fails |
//! | writes of a type that such a client remembers | 4,096 | the oldest is forgotten |
//! | a watch that is opened | 30 s ([`cache::ReflectorOptions::request_timeout`]) | it has failed |
//! | a page of a list | 60 s of silence, 5 minutes in all | it has failed |
//! | a watch of a server that sends bookmarks | 3 minutes of silence | it is begun anew |
//! | a request for a Lease | half the renew deadline, at least 1 s | it is tried again within the deadline |
//! | a key held back until caches have seen its writes | 150 s | it fails, and is then worked on |
//! | caches that are to sync | 2 minutes ([`runtime::ControllerBuilder::cache_sync_timeout`]) | who waits fails |
//! | a replica that cannot renew its Lease | 10 s ([`runtime::ShardingConfig`]) | it stops; others begin after 15 s |
//! | keys of other replicas that are remembered | four lease durations after they last came | they are forgotten |
//! | a shutdown | 30 s ([`runtime::ManagerBuilder::graceful_shutdown_timeout`]) | what is left is dropped and named |
//! | events that wait to be taken up | 1,000 | more are dropped |
//! | events on their way to the server | 1,000, eight of them under way | the rest waits to be taken up |
//! | series of events that are remembered | 4,096 | the one that was silent longest is forgotten |
//! | tries to write an event | 12, 10 s apart | it is dropped |
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `serve` | `runtime::Server`: health, readiness and metrics over HTTP |
//! | `tls` | `runtime::CertWatcher`: certificates that are read again when their files change |
//! | `self-signed` | `runtime::SelfSigned`: a self-made authority and its certificate |
//! | `webhooks` | `webhook`: admission and conversion, served over TLS or in process |
//! | `signals` | `runtime::shutdown_signal`: SIGTERM and SIGINT |
//! | `compression` | `Storage::Compressed`: objects held as compressed text |
//!
//! # What is left out
//!
//! Of client-go and controller-runtime, with the reason. What is there, by Go's names and with the test that holds it,
//! stands in `informer/docs/client-go.md` of the repository.
//!
//! - Concurrency by kind (`GroupKindConcurrency`): each controller says its own.
//! - Fakes (the clientset, `interceptor`, `FakeRecorder`, envtest): the crate `drydock-testkit` has a whole server.
//! - The recorder of `core/v1` events, and recorders that only log: servers since 1.19 have `events.k8s.io/v1`.
//! - Leader election by coordination (`LeaseCandidate`, `preferredHolder`), and by other locks than Leases: the former
//!   is not on by default in any server, the latter are gone from client-go.
//! - pprof: it is Go's.
//! - `MutationCache` and expectations in controllers: versions of writes do it ([`reconcile::Writes`]);
//!   [`runtime::Expectations`] are there for those who want them.
//!
//! # What the cache leaves out
//!
//! | of client-go | why |
//! |---|---|
//! | one check period that all resyncs share | each handler has its own period, kept to exactly |
//! | the watch list that waits without end for a bookmark | after a minute the source is listed instead |
//! | a deletion of what the cache never had | handlers never received the object, so they receive no deletion |
//! | the detector of mutated caches | an [`Object`] cannot be changed |
//! | the detector of inconsistent watch lists | the random tests compare the cache with the server |
//! | `UndeltaStore`, `Heap` | nothing here needs them |
//! | `MutationCache` | [`cache::Lister::reached`] waits for own writes |
//! | `RetryWatcher`, `Until` | a [`cache::SharedInformer`] and a handler do the same |
//! | the check of the expected type | the path decides the type; what is not of it fails where it is decoded |
//! | names and metrics of informers | a factory has one informer a type |
//! | CBOR and protobuf | the text of JSON is what is kept |

#![forbid(unsafe_code)]

// the path of an object
pub mod cache;
pub mod handler;
pub mod queue;
pub mod reconcile;
pub mod runtime;
#[cfg(feature = "webhooks")]
pub mod webhook;
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

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
