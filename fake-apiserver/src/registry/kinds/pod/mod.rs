//! Pods: their strategy, and what everything with a pod template shares with them. Knows nothing of workloads.

mod admission;
mod amount;
pub(crate) mod defaults;
mod image;
mod pod_resources;
mod prepare;
mod strategy;
mod volume_defaults;

pub(crate) use strategy::PodStrategy;
pub(crate) use volume_defaults::default_claim_spec;
