//! Kubernetes controllers with the caches, queues and managers of client-go and controller-runtime, for a
//! [`kube::Client`].
//!
//! ```
//! use std::sync::Arc;
//!
//! use informer::reconcile::{Action, ReconcileError};
//! use informer::runtime::{Manager, as_reconciler};
//! use k8s_openapi::api::core::v1::ConfigMap;
//!
//! /// Called by `main` with a client for the cluster.
//! async fn run(client: kube::Client) -> Result<(), informer::Error> {
//!     let manager = Manager::new(client);
//!     let maps = as_reconciler(manager.lister(), reconcile);
//!     manager.controller("maps").for_::<ConfigMap>().complete(maps)?;
//!     manager.run(std::future::pending()).await // stops all parts in order when the future completes
//! }
//!
//! /// Called with the cached state of each existing ConfigMap, and again after each change.
//! async fn reconcile(map: Arc<ConfigMap>) -> Result<Action, ReconcileError> {
//!     println!("{:?} has the labels {:?}", map.metadata.name, map.metadata.labels);
//!     Ok(Action::await_change()) // an error would be retried, with increasing delays
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
//! A controller works on a copy of the cluster's state: changes arrive as events, are stored in a cache, and add keys
//! to a queue. This crate implements the following stages, named as in client-go:
//!
//! | stage | task |
//! |---|---|
//! | [`cache`] | a reflector lists and watches one type; the indexer stores its objects; listers read them |
//! | [`handler`] | maps a change to the keys of the objects it affects |
//! | [`queue`] | contains each key once, returns it to one worker at a time, and delays it after failures |
//! | [`reconcile`] | a worker takes a key, compares the actual with the desired state, and acts |
//! | [`runtime`] | other parts of a process: controllers that start and stop together, leader election, events |
//!
//! All layers share two types: an [`ObjectKey`] identifies an object, and an [`Error`] describes a failure.
//!
//! # Objects
//!
//! A cache stores the JSON text of each object, optionally without `managedFields`, and decodes it on demand
//! ([`CachedObject::typed`]). This is the default ([`Storage::Encoded`]) because of the measurements in
//! `benches/README.md` in the repository. Keys, versions, labels and owners are read without decoding.
//!
//! The library works with any server behind its client. It is deterministic: it iterates in defined orders, derives
//! jitter from a seed, and uses tokio's clock, so that two runs with the same seed send the same requests in the same
//! order. The default seed is random, but constant while tokio's clock is paused, as in tests.
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
//! | changing the status of an object | [`runtime::update_status`], [`runtime::conditions`] |
//! | results and errors of a reconcile | [`reconcile::Action`], [`reconcile::ReconcileError`] |
//! | finalizers, owners, events, retries | [`runtime`] |
//! | classifying errors, including wrapped errors | [`errors`] |
//! | moving from kube-runtime, client-go or controller-runtime | `docs/` of the repository |
//! | a cache without a controller | [`cache`] |
//! | a work queue without a cache | [`queue::WorkQueue`] |
//! | tests | the crate `drydock-testkit`, or [`cache::FakeSource`] without a server |
//!
//! A key is only reconciled once the caches contain the writes of its previous reconcile, if these writes were sent
//! with [`runtime::Manager::client`]; see [`reconcile::Writes`].
//!
//! # Features
//!
//! By default, all features are disabled.
//!
//! | feature | adds |
//! |---|---|
//! | `signals` | `runtime::shutdown_signal`: SIGTERM and SIGINT |
//! | `serve` | `runtime::Server`: health, readiness and metrics over HTTP |
//! | `tls` | TLS for the server, and `runtime::CertWatcher`, which reloads certificates when their files change |
//! | `self-signed` | `runtime::SelfSigned`: a generated certificate authority and a certificate signed by it |
//! | `webhooks` | `webhook::Webhooks` and `webhook::WebhookServer`: admission and conversion, in process or over TLS |
//! | `compression` | `Storage::Compressed`: objects stored as compressed JSON text |
//!
//! # Logs and traces
//!
//! All logs use `tracing`. Log lines of a reconcile, including lines from the user's code and from panics, are within a
//! span whose fields identify the object:
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
//! | `manager`, `runnable`, `controller` | a component of the process, while it runs | `informer::process` |
//! | `cache`, `handler` | an informer, and each of its handlers | `informer::process` |
//! | `leader_election`, `sharding` | a candidate or replica, with its Lease or group | `informer::process` |
//!
//! [`runtime::ControllerBuilder::span`] replaces the reconcile spans, and `Webhooks::span` the spans of webhooks. All
//! spans have the level ERROR, so that a subscriber that only shows errors includes them. A span is exported when it
//! ends, so trace exporters should exclude the target `informer::process`; each reconcile is then a separate trace.
//! `examples/opentelemetry` in the repository is an example program.
//!
//! # Bounds
//!
//! | bound | value | beyond it |
//! |---|---|---|
//! | keys in a [`queue::WorkQueue`] | one entry for each key | |
//! | a read of [`runtime::CachedClient`] that waits for the client's own writes | 30 s | it fails |
//! | objects of a type with recorded writes of such a client | 4,096 | the oldest object is dropped |
//! | opening a watch, or a streaming list | 90 s, or 30 s ([`cache::ReflectorOptions::request_timeout`]) | it fails |
//! | a page of a list | 60 s without data, 5 minutes in total | it fails |
//! | a watch of a server that sends bookmarks | 3 minutes without data | it is restarted |
//! | a request for a Lease | half the renew deadline, at least 1 s | it is retried within the deadline |
//! | a key held back until caches contain its writes | 150 s | it fails, and is then reconciled |
//! | sync of a cache | 2 minutes ([`runtime::ControllerBuilder::cache_sync_timeout`]) | waiting controllers fail |
//! | sync of the Leases of a [`runtime::Sharding`] | 2 minutes | its manager fails |
//! | a replica without a valid Lease | lease duration plus hand-over timeout: 75 s | it is not ready |
//! | a replica that cannot renew its Lease | 10 s ([`runtime::ShardingConfig`]) | it stops; others start after 15 s |
//! | recorded keys of other replicas | four lease durations after their last event | they may be dropped |
//! | a shutdown | 30 s ([`runtime::ManagerBuilder::graceful_shutdown_timeout`]) | unfinished tasks are dropped |
//! | queued events | 1,000 | further events are dropped |
//! | events in progress | 1,000, with at most eight concurrent requests | further events stay queued |
//! | recorded series of events | 4,096 | the series with the oldest last event is dropped |
//! | attempts to write an event | 12, at intervals of 10 s | it is dropped |
//!
//! # Features of client-go and controller-runtime that are not included
//!
//! `informer/docs/client-go.md` in the repository lists the implemented features by their Go names, with their tests.
//!
//! - Concurrency by kind (`GroupKindConcurrency`): each controller sets its own concurrency.
//! - Fakes (the clientset, `interceptor`, `FakeRecorder`, envtest): the crate `drydock-testkit` provides a complete
//!   fake API server.
//! - The recorder of `core/v1` events, and recorders that only log: servers have had `events.k8s.io/v1` since 1.19.
//! - Coordinated leader election (`LeaseCandidate`, `preferredHolder`), which servers do not enable by default, and
//!   locks other than Leases, which client-go has removed.
//! - pprof, which is specific to Go.
//! - `MutationCache` and expectations in controllers: tracking the versions of writes replaces them
//!   ([`reconcile::Writes`]); [`runtime::Expectations`] are available separately.
//!
//! # Compatibility
//!
//! Within one major version (before 1.0: within one minor version), code keeps compiling under these rules:
//!
//! - Enums that may get more variants are `#[non_exhaustive]`. [`handler::Event`], [`runtime::Deletion`] and
//!   [`runtime::conditions::ConditionStatus`] will not get more variants, so a match on them does not need `_`.
//! - Option structs may get more fields: end their literals with `..`, as in `AddOptions { priority: 1,
//!   ..AddOptions::default() }`. Structs that the library returns are `#[non_exhaustive]`. [`runtime::ClusterKey`] will
//!   not get more fields.
//! - These crates are part of the public API, so a new major version of one of them requires a new major version of
//!   this crate: `kube`, `k8s-openapi`, `serde`, `serde_json`, `tokio`, `tracing`, `bytes`, and with the feature
//!   `webhooks` `axum`. [`CancellationToken`] of `tokio-util`, and [`Stream`] and [`BoxFuture`] of `futures`, are
//!   re-exported here.
//!
//! # Differences from client-go's caches
//!
//! | client-go | here |
//! |---|---|
//! | all resyncs share one check period | each handler has its own exact period |
//! | a watch list waits indefinitely for a bookmark | after a minute, the informer sends list requests instead |
//! | handlers receive deletions of objects that the cache never contained | handlers do not receive them |
//! | the cache mutation detector | a [`CachedObject`] is immutable |
//! | the watch list consistency detector | the random tests compare the cache with the server |
//! | `UndeltaStore`, `Heap` | not needed |
//! | `MutationCache` | [`cache::Lister::reached`] waits until the cache contains a write |
//! | `RetryWatcher`, `Until` | a [`cache::SharedInformer`] and a handler serve the same purpose |
//! | the reflector checks the expected type | the path determines the type; objects of another type fail to decode |
//! | names and metrics of informers | a factory has one informer for each type |
//! | CBOR and protobuf | caches store the JSON text |

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// The stages of the pipeline.
pub mod cache;
pub mod handler;
pub mod queue;
pub mod reconcile;
pub mod runtime;
#[cfg(feature = "webhooks")]
pub mod webhook;
// Shared by all layers.
mod key;
mod resource_version;
mod object;
mod cache_state;
mod error;
pub mod errors;
// Support for the layers.
mod clock;
mod deadline;
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

// Types of other crates that occur in signatures, re-exported so that callers do not have to depend on the same
// versions.
pub use futures::Stream;
pub use futures::future::BoxFuture;
pub use tokio_util::sync::CancellationToken;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../docs/kube-runtime.md")]
struct FromKubeRuntime;
