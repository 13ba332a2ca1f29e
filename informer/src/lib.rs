//! Controllers for Kubernetes: client-go's and controller-runtime's caches, queues and managers, on a [`kube::Client`].
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
//! A controller works on a copy of the cluster's state: changes arrive as events, are stored in a cache, and become
//! keys in a queue. This crate implements that path, with the names of client-go:
//!
//! | stage | task |
//! |---|---|
//! | [`cache`] | a reflector lists and watches one type; the indexer stores its objects; listers read them |
//! | [`handler`] | maps a change to the keys of the objects it affects |
//! | [`queue`] | holds keys: each at most once, with at most one worker, and after a failure with a delay |
//! | [`reconcile`] | a worker takes a key, compares the actual with the desired state, and acts |
//! | [`runtime`] | the rest of a process: controllers that start and stop together, leader election, events |
//!
//! All layers share two types: an [`ObjectKey`] identifies an object, and an [`Error`] describes a failure.
//!
//! # Objects
//!
//! A cache stores an object as the text that it received, optionally without `managedFields`, and decodes it on demand
//! ([`CachedObject::typed`]). This is the default ([`Storage::Encoded`]) because of the measurements in
//! `benches/README.md` in the repository. Keys, versions, labels and owners are read without decoding.
//!
//! The library does not depend on the server behind its client. It iterates in a defined order everywhere, takes its
//! jitter from a seed and its time from tokio's clock, so that two runs with one seed make the same requests in the
//! same order. The default seed is random; while tokio's clock is paused, as in tests, it is constant.
//!
//! # Overview
//!
//! | for | use |
//! |---|---|
//! | a controller, and the changes that trigger it | [`runtime::Manager::controller`], [`runtime::ControllerBuilder`] |
//! | several controllers, leader election, health, metrics | [`runtime::Manager`] |
//! | reconciling objects, or only their keys | [`runtime::ObjectReconciler`], [`reconcile::Reconciler`] |
//! | validating, defaulting and converting objects | `webhook::Webhooks`, with the feature `webhooks` |
//! | replicas that share the keys of a controller | [`runtime::Sharding`] |
//! | several clusters under one manager | [`runtime::Clusters`] |
//! | a client that reads from caches and writes to the server | [`runtime::CachedClient`] |
//! | creating and updating dependent objects | [`runtime::Dependents`] |
//! | the status of an object | [`runtime::update_status`], [`runtime::conditions`] |
//! | results and errors of a reconcile | [`reconcile::Action`], [`reconcile::ReconcileError`] |
//! | finalizers, owners, events, retries | [`runtime`] |
//! | distinguishing errors, including wrapped ones | [`errors`] |
//! | moving from kube-runtime, client-go or controller-runtime | `docs/` of the repository |
//! | a cache without a controller | [`cache`] |
//! | a work queue without a cache | [`queue::WorkQueue`] |
//! | tests | the crate `drydock-testkit`, or [`cache::FakeSource`] without a server |
//!
//! No reconcile uses a cache that is older than the writes of the key's previous reconcile, if these were made by
//! [`runtime::Manager::client`]; see [`reconcile::Writes`].
//!
//! # Features
//!
//! By default, all features are disabled.
//!
//! | feature | adds |
//! |---|---|
//! | `signals` | `runtime::shutdown_signal`: SIGTERM and SIGINT |
//! | `serve` | `runtime::Server`: health, readiness and metrics over HTTP |
//! | `tls` | TLS for the server, and `runtime::CertWatcher`, which reads certificates again when their files change |
//! | `self-signed` | `runtime::SelfSigned`: a generated authority and its certificate |
//! | `webhooks` | `webhook::Webhooks` and `webhook::WebhookServer`: admission and conversion, in process or over TLS |
//! | `compression` | `Storage::Compressed`: objects stored as compressed text |
//!
//! # Logs and traces
//!
//! All logs use `tracing`. The lines of a reconcile, including those of the user's code and of panics, are within a
//! span that names the object:
//!
//! ```text
//! ERROR reconcile{controller="web" group="apps" kind="Deployment" namespace="shop" name="web" reconcile_id=7
//!       attempt=2}: reconciler error error=not yet is_terminal=false
//! ```
//!
//! | span | covers | target |
//! |---|---|---|
//! | `reconcile` | one call of a reconciler | `informer::reconcile` |
//! | `admission`, `conversion` | one request to a webhook | `informer::webhook` |
//! | `manager`, `runnable`, `controller` | a part of the process, while it runs | `informer::process` |
//! | `cache`, `handler` | an informer of a source, and each of its handlers | `informer::process` |
//! | `leader_election`, `sharding` | the same, with the Lease and the identity | `informer::process` |
//!
//! [`runtime::ControllerBuilder::span`] replaces the first, and `Webhooks::span` the second. All have the level ERROR,
//! so a subscriber that only shows errors keeps them. A span is exported as a trace when it ends, so exporting layers
//! should exclude the target `informer::process`; each reconcile is a separate trace. `examples/opentelemetry` in the
//! repository is an example program.
//!
//! # Bounds
//!
//! | bound | value | beyond it |
//! |---|---|---|
//! | keys in a [`queue::WorkQueue`] | one entry for each key | |
//! | a read of [`runtime::CachedClient`] that waits for its own write, also a lost one | 30 s | it fails |
//! | writes of a type recorded for such a client | 4,096 | the oldest is dropped |
//! | opening a watch | 30 s ([`cache::ReflectorOptions::request_timeout`]) | it fails |
//! | a page of a list | 60 s of silence, 5 minutes in all | it fails |
//! | a watch of a server that sends bookmarks | 3 minutes of silence | it is restarted |
//! | a request for a Lease | half the renew deadline, at least 1 s | it is retried within the deadline |
//! | a key held back until caches contain its writes | 150 s | it fails, and is then reconciled |
//! | sync of a cache | 2 minutes ([`runtime::ControllerBuilder::cache_sync_timeout`]) | waiting parts fail |
//! | sync of the Leases of a [`runtime::Sharding`] | 2 minutes | its manager fails |
//! | a replica without a valid Lease | lease duration plus hand-over timeout: 75 s | it is not ready |
//! | a replica that cannot renew its Lease | 10 s ([`runtime::ShardingConfig`]) | it stops; others start after 15 s |
//! | recorded keys of other replicas | four lease durations after their last event | they are dropped |
//! | a shutdown | 30 s ([`runtime::ManagerBuilder::graceful_shutdown_timeout`]) | the rest is dropped |
//! | queued events | 1,000 | further events are dropped |
//! | events in progress | 1,000, eight of them at the server | further events stay queued |
//! | recorded series of events | 4,096 | the series with the longest silence is dropped |
//! | attempts to write an event | 12, at intervals of 10 s | it is dropped |
//!
//! # Features of client-go and controller-runtime that are not included
//!
//! `informer/docs/client-go.md` in the repository lists the implemented features by their Go names, with their tests.
//!
//! - Concurrency by kind (`GroupKindConcurrency`): each controller sets its own.
//! - Fakes (the clientset, `interceptor`, `FakeRecorder`, envtest): the crate `drydock-testkit` has a whole server.
//! - The recorder of `core/v1` events, and recorders that only log: servers since 1.19 have `events.k8s.io/v1`.
//! - Leader election by coordination (`LeaseCandidate`, `preferredHolder`), and by other locks than Leases: no server
//!   enables the former by default, and client-go has removed the latter.
//! - pprof: it is specific to Go.
//! - `MutationCache` and expectations in controllers: the versions of writes replace them ([`reconcile::Writes`]);
//!   [`runtime::Expectations`] are available separately.
//!
//! # Compatibility
//!
//! Within one major version (for 0.1: within 0.1), code that follows three rules keeps compiling:
//!
//! - Enums that may get more variants are `#[non_exhaustive]`. [`handler::Event`], [`runtime::Deletion`] and
//!   [`runtime::conditions::ConditionStatus`] are complete: a match on them does not need `_`.
//! - Structs of options may get more fields: end their literals with `..`, as in
//!   `AddOptions { priority: 1, ..AddOptions::default() }`. Structs that the library returns are `#[non_exhaustive]`.
//!   [`runtime::ClusterKey`] is complete.
//! - These crates are part of the interface, and a new major version of one of them is a new version of this one:
//!   `kube`, `k8s-openapi`, `tokio`, `tracing`, `serde_json`, `bytes`, and with the feature `webhooks` `axum`.
//!   [`CancellationToken`] of `tokio-util`, and [`Stream`] and [`BoxFuture`] of `futures`, are re-exported here.
//!
//! # Differences from client-go's caches
//!
//! | client-go | here |
//! |---|---|
//! | one check period that all resyncs share | each handler has its own exact period |
//! | a watch list that waits indefinitely for a bookmark | after a minute the source is listed instead |
//! | a deletion of an object that the cache never contained | handlers do not receive it |
//! | the detector of mutated caches | a [`CachedObject`] is immutable |
//! | the detector of inconsistent watch lists | the random tests compare the cache with the server |
//! | `UndeltaStore`, `Heap` | not needed |
//! | `MutationCache` | [`cache::Lister::reached`] waits for own writes |
//! | `RetryWatcher`, `Until` | a [`cache::SharedInformer`] and a handler do the same |
//! | the check of the expected type | the path determines the type; objects of another type fail to decode |
//! | names and metrics of informers | a factory has one informer for each type |
//! | CBOR and protobuf | caches store the JSON text |

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// the path of an object
pub mod cache;
pub mod handler;
pub mod queue;
pub mod reconcile;
pub mod runtime;
#[cfg(feature = "webhooks")]
pub mod webhook;
// shared by all layers
mod key;
mod resource_version;
mod object;
mod error;
pub mod errors;
// next to the path
mod clock;
mod jitter;
#[cfg(test)]
mod interleave;
mod spans;
mod sync;
mod tasks;
pub mod metrics;

pub use clock::Clock;
pub use error::Error;
pub use key::{ObjectKey, ParseKeyError};
pub use object::{Cacheable, CachedObject, OwnerRef, Storage};
pub use resource_version::ResourceVersion;

// types of other crates in signatures, so that callers need not depend on the same version
pub use futures::Stream;
pub use futures::future::BoxFuture;
pub use tokio_util::sync::CancellationToken;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../docs/kube-runtime.md")]
struct FromKubeRuntime;
