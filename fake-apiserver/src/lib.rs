//! An in-process fake Kubernetes API server.

pub mod api;
mod endpoints;
mod storage;
mod watch;
mod registry;
mod entropy;
