//! An in-process fake Kubernetes API server.

pub mod api;
mod endpoints;
mod storage;
mod watch;
mod registry;
mod server;
mod serve;
#[cfg(feature = "tls")]
mod tls;
mod kubeconfig;
pub mod load;
mod entropy;
mod tasks;

pub use serve::Serving;
pub use server::{ApiServer, ApiServerBuilder, LoadError};
