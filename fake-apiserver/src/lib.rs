//! A fake Kubernetes API server inside the test process: real list, watch and resourceVersion semantics, patch, apply,
//! CRDs, and events and faults on demand. It is reachable through a `kube::Client` without a socket, and over HTTP(S)
//! for kubectl and all other clients.
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
//! | folder | contents |
//! |---|---|
//! | `endpoints` | filters, route, negotiation, decode, handler, encode; the only layer that handles HTTP requests |
//! | `faults` | injected faults |
//! | `registry` | the semantics of the verbs: scheme, strategy, create, update, patch, apply, delete, read |
//! | `storage` | state at a revision: a snapshot and a log for each resource |
//! | `watch` | cursors into the logs |
//!
//! Other modules: [`api`], the types shared by all layers; `workers`, the controllers of a cluster; `entropy`, the
//! clock and the random numbers of a server; `serve` and `client`, the entry points.
//!
//! # Where to start
//!
//! | task | entry point |
//! |---|---|
//! | test a controller | the crate `drydock-testkit`, which adds virtual time to this one |
//! | get a `kube::Client` | `ApiServer::client`, with the feature `client` |
//! | listen on a port, write a kubeconfig | [`ApiServer::serve`], or the command `fake-apiserver --kubeconfig FILE` |
//! | configure users, permissions, admission, workers, the seed | [`ApiServer::builder`] |
//! | inject faults, control watches | [`faults`]; from other processes [`control`] |
//! | inspect the requests of clients | [`ApiServer::journal`] |
//! | load, save and compare states | [`load`], [`ApiServer::snapshot`], [`ApiServer::fork`] |
//!
//! # What is left out
//!
//! Most requests that use unsupported features fail with 404, 405, 406, 415 or 501. The section "What the fake leaves
//! out" of ARCHITECTURE.md is the complete list. The most important entries:
//!
//! - The controllers of a cluster only run on request ([`Worker`]). Without them Deployments do not create Pods, Pods
//!   do not run, owned objects are not collected, and a deleted Namespace stays Terminating, as in envtest. Probes of
//!   containers succeed unless a [`PodScript`] makes them fail.
//! - A [`PodScript`] implements `exec` and `port-forward`, over WebSockets and SPDY; `attach` works without a script.
//!   These connections need [`Worker::Kubelet`]. `proxy` is not supported.
//! - Authorization is off by default ([`Authorization`]): every client is an administrator.
//! - CBOR is not supported.
//! - Rarely used fields of built-in kinds are not checked in depth.
//! - Aggregated API servers are only called at addresses and services that the test sets
//!   ([`ApiServerBuilder::webhook`]).
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `client` | `ApiServer::client`, an in-process `kube::Client` |
//! | `serve` | ports ([`ApiServer::serve`]), the [`control`] API, WebSockets, Tables, OpenAPI |
//! | `tls` | HTTPS with a generated authority (`ApiServer::serve_tls`), and webhooks at addresses; includes `serve` |
//! | `cel` | CEL expressions: rules of CRDs (without it, a warning lists them), admission policies, match conditions |
//! | `workers` | the controllers of a cluster ([`Worker`]) and the scripts of Pods ([`PodScript`]) |
//! | `cli`, on by default | the command `fake-apiserver`, with `tls`, `cel` and `workers` |
//!
//! Without `serve`, requests for WebSockets, Tables and OpenAPI fail with 501; without `tls`, calls of webhooks at
//! addresses fail; without `workers`, a server with most [workers](Worker) does not start. The errors name the feature.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Code that is only used with sockets or by workers is also compiled without the features.
#![cfg_attr(not(all(feature = "serve", feature = "workers")), allow(dead_code))]

pub mod api;
mod egress;
mod endpoints;
pub mod faults;
mod registry;
mod storage;
mod watch;
#[cfg_attr(not(feature = "workers"), path = "workers/absent.rs")]
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
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "serve")]
mod kubeconfig;
pub mod load;
pub mod trace;
#[cfg(all(feature = "serve", feature = "cel"))]
#[doc(hidden)]
pub mod expressions;
mod world;
#[cfg(feature = "serve")]
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
#[cfg(feature = "serve")]
pub use serve::{ServeOptions, Serving};
pub use server::{ApiServer, LoadError};
pub use snapshot::Snapshot;
#[cfg(feature = "tls")]
#[doc(hidden)]
pub use tls::signed_certificate;
#[cfg(feature = "tls")]
pub use tls::{ServiceAccountKeys, random_token, self_signed_certificate};
pub use workers::Worker;
#[cfg(feature = "workers")]
pub use workers::{Kubelet, PodScript, PodSelector, ProbeKind, ScriptOrder, StageError, UnknownWorker};
pub use world::{LoadReport, StoredChange, StoredObject, WorldDiff};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
