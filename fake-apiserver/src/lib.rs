//! A fake Kubernetes API server inside the test process: real list, watch and resourceVersion semantics, patch, apply,
//! CRDs, and events and faults on demand; reachable as a `kube::Client` without a socket, and over HTTP(S) for kubectl
//! and every other client.
//!
//! ```
//! use fake_apiserver::{ApiServer, Verb};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::start();
//! server.load([json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}})])?;
//! let settings = server.get("v1", "ConfigMap", "default", "settings").await?;
//! assert_eq!(settings["metadata"]["resourceVersion"], server.resource_version().to_string());
//! assert_eq!(server.journal().count(Verb::Create, "configmaps"), 0);
//! # Ok(())
//! # }
//! ```
//!
//! # The path of a request
//!
//! | folder | what happens there |
//! |---|---|
//! | `endpoints` | filters, route, negotiation, decode, handler, encode; the one layer that knows HTTP |
//! | `faults` | injected faults |
//! | `registry` | the meaning of the verbs: scheme, strategy, create, update, patch, apply, delete, read |
//! | `storage` | state at a revision: a snapshot and a log for each resource |
//! | `watch` | cursors into the logs |
//!
//! Beside the path lie [`api`], the vocabulary; `workers`, the controllers of a cluster; `entropy`, the only clock and
//! the only random numbers; `serve` and `client`, the ways in.
//!
//! # Where to go on
//!
//! | you want | look at |
//! |---|---|
//! | to test a controller | the crate `drydock-testkit`, which adds virtual time to this one |
//! | a `kube::Client` of it | `ApiServer::client`, with the feature `client` |
//! | a port, and a kubeconfig | [`ApiServer::serve`], or the command `fake-apiserver --kubeconfig FILE` |
//! | users, rights, admission, workers, a seed | [`ApiServer::builder`] |
//! | faults and watches in your hand | [`faults`]; from other processes [`control`] |
//! | the requests of clients | [`ApiServer::journal`] |
//! | states to load, keep and compare | [`load`], [`ApiServer::snapshot`], [`ApiServer::fork`] |
//!
//! # What is left out
//!
//! What is not supported is refused by name, with 404, 405, 415 or 501. The whole list stands in ARCHITECTURE.md, "What
//! the fake leaves out"; what is missed first is this:
//!
//! - The controllers of a cluster run on request alone ([`Worker`]). Without them Deployments make no Pods, Pods do not
//!   run, owned objects are not collected, and a deleted Namespace stays Terminating, as in envtest. Autoscalers,
//!   heartbeats of Nodes and preemption are not simulated.
//! - `exec`, `attach`, `port-forward` and `proxy` lead nowhere.
//! - Authorization is off by default ([`Authorization`]): every client is an administrator.
//! - CBOR is not spoken.
//! - Deep checks of rarely written fields of built-in kinds are left out.
//! - Aggregated API servers are not called.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `client` | `ApiServer::client`, an in-process `kube::Client` |
//! | `tls` | [`ApiServer`] over HTTPS with a generated authority |
//! | `cel` | the rules of CRDs (`x-kubernetes-validations`); without it they are named in a warning |
//! | `cli`, on by default | the command `fake-apiserver`, with `tls` and `cel` |

#![forbid(unsafe_code)]

pub mod api;
mod endpoints;
pub mod faults;
mod registry;
mod storage;
mod watch;
mod webhooks;
mod workers;
#[cfg(feature = "client")]
mod client;
mod client_service;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod bench;
mod builder;
mod boot;
mod connect;
mod server;
mod options;
mod snapshot;
mod replica;
mod serve;
#[cfg(feature = "tls")]
mod tls;
mod kubeconfig;
pub mod load;
mod world;
pub mod control;
mod entropy;
mod tasks;

pub use api::front_proxy::FrontProxy;
pub use api::kubernetes_version::{KubernetesVersion, UnknownKubernetesVersion};
pub use api::request_info::{RequestInfo, Verb};
pub use api::streams::{ExecOutput, Stdin};
pub use api::user::{Anonymous, UserInfo};
pub use builder::ApiServerBuilder;
pub use client_service::{ClientService, ResponseBody};
pub use endpoints::audit::{AuditPolicy, AuditPolicyError};
pub use endpoints::journal::{Entry, Journal, RecordedEvent, RecordedRequest};
pub use faults::{
    Decision, Fault, FaultGuard, Held, HeldEvent, RestartLog, Seen, Verdict, WatchEventKind, WatchHandle, When,
};
pub use options::Authorization;
pub use replica::Replica;
pub use serve::{ServeOptions, Serving};
pub use server::{ApiServer, LoadError};
pub use snapshot::Snapshot;
#[cfg(feature = "tls")]
pub use tls::{ServiceAccountKeys, random_token, self_signed_certificate};
pub use workers::{Kubelet, PodScript, PodSelector, ScriptOrder, UnknownWorker, Worker};
pub use world::{LoadReport, StoredChange, StoredObject, WorldDiff};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
