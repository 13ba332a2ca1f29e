//! An in-process fake Kubernetes API server.

pub mod api;
mod endpoints;
mod registry;
mod entropy;
