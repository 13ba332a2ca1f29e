//! An in-process fake Kubernetes API server.

pub mod api;
mod endpoints;
mod faults;
mod registry;
mod storage;
mod watch;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod bench;
mod server;
mod serve;
#[cfg(feature = "tls")]
mod tls;
mod kubeconfig;
pub mod load;
mod entropy;
mod tasks;

pub use api::request_info::{RequestInfo, Verb};
pub use endpoints::journal::{Entry, Journal, RecordedEvent, RecordedRequest};
pub use faults::{Fault, FaultGuard, Seen, Verdict, WatchEventKind, WatchHandle};
pub use serve::Serving;
pub use server::{ApiServer, ApiServerBuilder, LoadError, Snapshot};
