//! Controllers, managers, leader election, events, and helpers for reconcilers.
//!
//! This is the top layer: of the other modules, only `webhook` uses it.

mod request_key;
mod cluster_key;
mod intake;
mod controller;
mod controller_builder;
mod redelivery;
mod controller_watches;
mod later_watches;
mod replays;
mod object_reconciler;
mod sharding;
mod runnable;
mod engine;
mod manager;
mod managed_controllers;
mod health;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "serve")]
mod access;
#[cfg(feature = "serve")]
pub(crate) mod listen;
#[cfg(feature = "tls")]
mod cert_watcher;
#[cfg(feature = "self-signed")]
mod self_signed;
#[cfg(feature = "signals")]
mod signals;
mod client;
mod leader_election;
mod fence;
mod clusters;
mod cluster_controller;
mod lease_lock;
mod recorder;
mod event_series;
mod event_sink;
mod finalizer;
mod create_or_update;
mod create_or_patch;
mod dependents;
mod update_status;
mod merge_patch;
pub mod owner_references;
pub mod conditions;
mod expectations;
mod request_metrics;
mod retry;

#[cfg(feature = "tls")]
pub use cert_watcher::{CertWatcher, Certificate};
pub use client::{CachedClient, DeleteAllOf, KindClient, ListRequest, Subresource};
pub use cluster_controller::ClusterControllerBuilder;
pub use cluster_key::ClusterKey;
pub use clusters::{Cluster, Clusters};
pub use controller::Controller;
pub use controller_builder::ControllerBuilder;
pub use create_or_patch::create_or_patch;
pub use create_or_update::{OperationResult, create_or_update};
pub use dependents::Dependents;
pub use expectations::Expectations;
pub use finalizer::{Deletion, add_finalizer, finalize, has_finalizer, remove_finalizer};
pub use health::{Check, EndpointResponse, Endpoints, ping};
pub use later_watches::LaterWatches;
pub use leader_election::{ElectionOutcome, LeaderElectionConfig, LeaderElector};
pub use lease_lock::LeaseLock;
pub use manager::{Manager, ManagerBuilder};
pub use object_reconciler::{AsReconciler, ObjectReconciler, as_reconciler};
pub use recorder::{EventRecorder, EventType, EventWriter, Note, RecorderConfig};
pub use request_key::RequestKey;
pub use request_metrics::count_requests;
pub use retry::{RetryPolicy, retry_on_conflict};
pub use runnable::{FnRunnable, Runnable, RunnableGroup, run_always, run_when_leader};
#[cfg(feature = "self-signed")]
pub use self_signed::SelfSigned;
#[cfg(feature = "serve")]
pub use serve::Server;
pub use sharding::{Sharding, ShardingConfig};
#[cfg(feature = "signals")]
pub use signals::shutdown_signal;
pub use update_status::update_status;
