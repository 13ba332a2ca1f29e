//! Test Kubernetes controllers without a cluster.
//!
//! A [`TestCluster`] is an API server inside the test ([`fake_apiserver`]) and a clock that jumps: an hour of waiting
//! costs a millisecond. Any controller that takes a [`kube::Client`] runs on it unchanged, those of kube-runtime too.
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
//! | for | use |
//! |---|---|
//! | the cluster | [`TestCluster::start`], [`TestCluster::builder`], or the rstest fixture [`cluster`](fn@cluster) |
//! | objects | [`objects`]: `pod("web-0").label(…)`; [`TestCluster::create`] and its kin; any type of kube |
//! | the controller | [`TestCluster::controller`], or [`TestCluster::client`] and [`TestCluster::run`] |
//! | one of another version of kube | [`TestCluster::controller_over`]; see [`service`] |
//! | time | [`TestCluster::settle`], [`eventually`][1], [`consistently`][2], [`advance`][3] |
//! | checks | [`TestCluster::get`], [`assert_has`][4], [`requests`][5], [`assert_idle`][6] |
//! | rights | [`TestClusterBuilder::rbac`], [`TestCluster::client_as`], [`TestCluster::observed_rbac`] |
//! | webhooks | [`TestCluster::webhooks`] |
//! | faults | [`TestCluster::inject`] with [`faults`], [`TestCluster::watches`], [`replica`][7], [`Running::crash`] |
//! | exhaustive: single faults, pairs, orderings | [`explore`](mod@explore) |
//! | worlds | [`TestCluster::snapshot`], [`fork`](TestCluster::fork), [`diff`](TestCluster::diff), [`Recording`] |
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
//! The [`guide`] covers all of it, with the real-world cause of every fault; [`operators`] tells of operators that were
//! not written for it, and [`migration`] helps with moving from mocks or from envtest.
//!
//! # Virtual time
//!
//! The cluster lives on tokio's paused clock: time passes only when every task waits for it, and then it jumps to the
//! next timer. It must therefore run in a `current_thread` runtime, the default of `#[tokio::test]`; the cluster pauses
//! the clock if necessary. A test is then a function of its seed, which a failing test prints together with the last
//! requests. Sockets live in real time: do not use them beside a cluster.
//!
//! # Limitations
//!
//! - The server leaves out what [`fake_apiserver`] lists. Parts of a cluster run on request:
//!   `TestCluster::builder().workers(Worker::ALL)`; RBAC by [`TestClusterBuilder::rbac`].
//! - Controllers on another runtime, on their own threads or behind sockets are not in virtual time.
//! - The time of day that a controller reads from the system is the real one. That of the cluster begins with it and
//!   goes on by virtual time: `cluster.server().now()`; give it to a controller that lets its clock be chosen.
//! - Exploration crashes only what [`TestCluster::controller`] started; it skews the clocks of Leases and no others.

mod test_cluster;
mod controller;
pub mod service;
mod object;
mod target;
mod create;
mod read;
mod work;
mod settle;
mod eventually;
mod assert;
mod expect;
mod diff;
mod filter;
mod report;
mod watches;
mod webhooks;
mod world;
mod recording;
mod real;
pub mod rbac;
pub mod explore;
pub mod faults;
#[doc = include_str!("../docs/guide.md")]
pub mod guide {}
#[doc = include_str!("../docs/operators.md")]
pub mod operators {}
#[doc = include_str!("../docs/migration.md")]
pub mod migration {}
pub mod objects;

pub use controller::Running;
pub use eventually::Condition;
pub use expect::OwnerTree;
pub use fake_apiserver::{
    ApiServer, Entry, ExecOutput, Journal, Kubelet, PodScript, PodSelector, RecordedRequest, Replica, RestartLog,
    Snapshot, Stdin, UserInfo, Verb, WatchEventKind, Worker, WorldDiff,
};
pub use faults::{FaultBuilder, Injected};
pub use filter::Requests;
pub use object::Object;
pub use objects::ObjectBuilder;
pub use rbac::ObservedRbac;
pub use recording::{Pace, RecordedChange, Recording, RecordingError};
pub use service::ClientService;
pub use target::{ObjectId, Target, ToObject};
pub use test_cluster::{TestCluster, TestClusterBuilder, cluster};
pub use watches::Watches;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
