//! Test Kubernetes controllers without a cluster.
//!
//! A [`TestCluster`] is an API server inside the test ([`fake_apiserver`]) with a virtual clock: an hour of waiting
//! takes a millisecond. Any controller that takes a [`kube::Client`] runs on it unchanged, including controllers of
//! kube-runtime.
//!
//! ```
//! use testkit::{TestCluster, objects::{config_map, pod}};
//! # use std::{sync::Arc, time::Duration};
//! # use futures::StreamExt;
//! # use k8s_openapi::api::core::v1::{ConfigMap, Pod};
//! # use kube::{Api, Client, api::{Patch, PatchParams}, runtime::{Controller, controller::Action, watcher}};
//! # async fn reconcile(pod: Arc<Pod>, client: Arc<Client>) -> Result<Action, kube::Error> {
//! #     let maps = Api::<ConfigMap>::namespaced(Client::clone(&client), pod.metadata.namespace.as_deref().unwrap());
//! #     let name = pod.metadata.name.as_deref().unwrap();
//! #     let map = serde_json::json!({
//! #         "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"pod": name},
//! #     });
//! #     maps.patch(name, &PatchParams::apply("doc"), &Patch::Apply(map)).await?;
//! #     Ok(Action::requeue(Duration::from_secs(300)))
//! # }
//! # async fn my_controller(client: Client) {
//! #     let on_error = |_: Arc<Pod>, _: &kube::Error, _: Arc<Client>| Action::requeue(Duration::from_secs(5));
//! #     Controller::new(Api::<Pod>::all(client.clone()), watcher::Config::default())
//! #         .run(reconcile, on_error, Arc::new(client))
//! #         .for_each(|_| async {})
//! #         .await
//! # }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() { // in a test: #[tokio::test]
//! let cluster = TestCluster::start();
//! cluster.controller("operator", my_controller); //             makes a ConfigMap for each Pod
//! cluster.create(pod("web-0").namespace("shop")).await;
//! cluster.settle().await; //                                    until nothing is left to do; no sleeps
//!
//! cluster.expire_watches(); //                                  410 Gone: the controller must list again
//! cluster.create(pod("web-1").namespace("shop")).await;
//! cluster.settle().await;
//! cluster.assert_has(config_map("web-1").namespace("shop").data("pod", "web-1"));
//! # }
//! ```
//!
//! # Overview
//!
//! `use testkit::prelude::*;` imports the commonly used names. Methods that let time pass and most methods that write
//! are async (`create`, `update`, `edit`, `patch`, `delete`, `webhooks`, `settle`, `eventually`, `consistently`,
//! `advance`, `assert_idle`). Most other methods are synchronous (`get`, `list`, `assert_has`, `requests`, `inject`,
//! `watches`, `controller`).
//!
//! | for | use |
//! |---|---|
//! | the cluster | [`TestCluster::start`], [`TestCluster::builder`], or the rstest fixture [`cluster`](fn@cluster) |
//! | objects | [`objects`]: `pod("web-0").label(…)`; [`TestCluster::create`] and similar methods; any type of kube |
//! | the controller | [`TestCluster::controller`], or [`TestCluster::client`] and [`TestCluster::run`] |
//! | a controller with a different version of kube | [`TestCluster::controller_over`]; see [`service`] |
//! | time | [`TestCluster::settle`], [`eventually`][1], [`consistently`][2], [`advance`][3] |
//! | checks | [`TestCluster::get`], [`assert_has`][4], [`requests`][5], [`assert_idle`][6] |
//! | permissions | [`TestClusterBuilder::rbac`], [`TestCluster::client_as`], [`TestCluster::observed_rbac`] |
//! | webhooks | [`TestCluster::webhooks`] |
//! | faults | [`TestCluster::inject`] with [`faults`], [`TestCluster::watches`], [`replica`][7], [`Running::crash`] |
//! | systematic faults, within a budget: single faults, pairs, delivery orders | [`explore`](mod@explore) |
//! | snapshots | [`TestCluster::snapshot`], [`fork`](TestCluster::fork), [`diff`](TestCluster::diff), [`Recording`] |
//! | a trace of a failing test | [`traces`]: a page with the steps of the test, if `DRYDOCK_TRACE=1` is set |
//! | a real API server | [`TestCluster::connect`] |
//!
//! [1]: TestCluster::eventually
//! [2]: TestCluster::consistently
//! [3]: TestCluster::advance
//! [4]: TestCluster::assert_has
//! [5]: TestCluster::requests
//! [6]: TestCluster::assert_idle
//! [7]: TestCluster::replica
//!
//! The [`guide`] covers all of these, with the real-world cause of every fault. [`operators`] explains how to test
//! existing operators, and [`migration`] helps with moving from mocks or from envtest.
//!
//! # Virtual time
//!
//! The cluster uses tokio's paused clock: time passes only when every task waits for it, and then it jumps to the next
//! timer. It must therefore run in a `current_thread` runtime, the default of `#[tokio::test]`; the cluster pauses the
//! clock if necessary. As a result, a test is a function of its seed, which a failing test prints together with the
//! last requests. Sockets use real time: do not use them together with a cluster.
//!
//! # Limitations
//!
//! - The server has the limitations that [`fake_apiserver`] lists. Other parts of a cluster run on request: workers
//!   with `TestCluster::builder().workers(Worker::ALL)`, RBAC with [`TestClusterBuilder::rbac`].
//! - Controllers in a different runtime, on separate threads or behind sockets do not use virtual time.
//! - A controller that reads the system clock gets the real time, except in an exploration on Linux. The cluster's
//!   clock, `cluster.server().now()`, starts at the same time and then follows virtual time. Pass it to a controller
//!   with a configurable clock.
//! - Exploration only crashes controllers started by [`TestCluster::controller`] or [`TestCluster::controller_over`],
//!   and only skews the clocks of clients that write Leases.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `cel`, on by default | the rules of CRDs (`x-kubernetes-validations`) and of admission policies |
//! | `explore`, on by default | the module [`explore`](mod@explore): systematic faults |
//! | `workers`, on by default | the controllers of a cluster ([`Worker`]) and the scripts of Pods ([`PodScript`]) |
//! | `serve` | ports, the control API, `exec`, `attach` and `port-forward`, Tables, OpenAPI |
//! | `processes` | the command `drydock`, which explores controllers in any language as processes; on Linux and macOS |
//! | `tracing-subscriber` | the virtual time as the time of `tracing-subscriber`'s lines |
//!
//! To make builds faster, disable the default features, and only enable the ones that your tests use:
//! `default-features = false, features = ["explore"]`. Without `workers`, a cluster with workers that need the feature
//! does not start, and the error contains the name of the feature.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Code that is only used in explorations is also compiled without the feature.
#![cfg_attr(not(feature = "explore"), allow(dead_code))]

mod lock;
mod json;
mod bounds;
mod hooks;
mod test_cluster;
mod clients;
mod seeded_hash;
mod virtual_clock;
mod controller;
pub mod service;
mod object;
mod target;
mod create;
mod read;
mod templates;
mod mask;
mod work;
mod settle;
mod eventually;
mod assert;
mod expect;
mod diff;
mod filter;
mod report;
mod history;
mod output;
mod panics;
mod text;
mod virtual_time;
mod page;
mod watches;
mod webhooks;
mod externals;
mod external;
mod world;
mod recording;
mod real;
pub mod rbac;
#[cfg(feature = "explore")]
pub mod explore;
#[cfg(all(feature = "processes", unix))]
pub mod processes;
pub mod faults;
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}
#[doc = include_str!("../docs/trace.md")]
pub mod traces {}
#[doc = include_str!("../docs/operators.md")]
pub mod operators {}
#[doc = include_str!("../docs/migration.md")]
pub mod migration {}
pub mod objects;
pub mod prelude;

pub use controller::Running;
pub use eventually::Condition;
pub use expect::OwnerTree;
pub use external::{External, ExternalError, Point};
pub use fake_apiserver::trace::Trace;
pub use fake_apiserver::{
    ApiServer, Entry, ExecOutput, Journal, RecordedRequest, Replica, RestartLog, Snapshot, Stdin, UserInfo, Verb,
    WatchEventKind, Worker, WorldDiff,
};
#[cfg(feature = "workers")]
pub use fake_apiserver::{Kubelet, PodScript, PodSelector, ProbeKind};
pub use faults::{FaultBuilder, Injected};
pub use filter::Requests;
pub use hooks::Unreachable;
pub use object::Object;
pub use objects::ObjectBuilder;
pub use rbac::ObservedRbac;
pub use recording::{Pace, RecordedChange, Recording, RecordingError};
pub use service::ClientService;
pub use target::{ByReference, ObjectId, Target, ToObject};
pub use test_cluster::{TestCluster, TestClusterBuilder, cluster};
pub use virtual_time::VirtualTime;
pub use watches::Watches;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
