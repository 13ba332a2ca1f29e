//! Replaces `workers` without the feature `workers`. A server only runs the workers that the registry runs with each
//! write, and `ApiServerBuilder::start` refuses all others.

mod expiry;
mod hash;
mod host;
pub(crate) mod meta;
mod objects;
mod worker;

pub(crate) use expiry::expire_events;
pub(crate) use host::Host;
pub(crate) use objects::{node_address, node_info, objects_of_namespace};
pub use worker::Worker;

use std::sync::Arc;

use tokio::sync::Notify;

/// Placeholder for the kubelet of all nodes.
#[derive(Clone, Debug)]
pub(crate) struct Kubelet;

impl Kubelet {
    pub(crate) fn new(_: Arc<Notify>) -> Self {
        Self
    }

    pub(crate) fn fork(&self, _: Arc<Notify>) -> Self {
        Self
    }
}
