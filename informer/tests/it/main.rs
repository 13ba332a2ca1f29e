//! Tests of the public API. Tests that need an API server use the fake API server of `testkit`.

mod work_queue;
mod work_queue_model;
mod leader_election;
mod helpers;
mod recorder;
mod cached_client;
mod controller;
mod builder;
mod callbacks;
mod blocked_callbacks;
mod cluster_writes;
mod clusters;
mod fence;
mod lease_holders;
mod own_writes;
mod write_order;
mod lost_answers;
mod restored;
mod verbs;
mod manager;
mod spans;
mod errors;
mod startup;
mod waits;
mod objects;
mod conveniences;
mod from_go;
mod from_reports;
mod from_kube_runtime;
mod ported;
#[cfg(feature = "serve")]
mod access;
#[cfg(feature = "serve")]
mod serve;
mod sharding;
mod hand_over;
mod sharding_leases;
#[cfg(all(unix, feature = "signals"))]
mod signals;
#[cfg(all(feature = "webhooks", feature = "self-signed"))]
mod webhooks;
#[cfg(all(feature = "webhooks", feature = "self-signed"))]
mod conversions;
#[cfg(all(feature = "webhooks", feature = "self-signed"))]
mod webhook_callbacks;
#[cfg(all(feature = "webhooks", feature = "self-signed"))]
mod kubectl;
mod explored;
mod explored_models;
