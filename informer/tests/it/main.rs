//! The library at its public boundary; what needs a server meets the fake one through `testkit`.

mod work_queue;
mod work_queue_model;
mod leader_election;
mod helpers;
mod recorder;
mod cached_client;
mod controller;
mod builder;
mod cluster_writes;
mod clusters;
mod fence;
mod own_writes;
mod restored;
mod verbs;
mod manager;
mod startup;
mod waits;
mod objects;
mod conveniences;
mod from_go;
mod ported;
#[cfg(feature = "serve")]
mod access;
#[cfg(feature = "serve")]
mod serve;
mod sharding;
#[cfg(feature = "signals")]
mod signals;
#[cfg(all(feature = "webhooks", feature = "self-signed"))]
mod webhooks;
#[cfg(all(feature = "webhooks", feature = "self-signed"))]
mod kubectl;
mod explored;
