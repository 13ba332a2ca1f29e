//! Pods: their strategy, and the rules shared by all kinds with a pod template. This module does not depend on
//! workloads.

mod amount;
pub(crate) mod defaults;
mod volume_defaults;
mod image;
pub(crate) mod pod_resources;
pub(crate) mod gates;
mod admission;
mod prepare;
pub(crate) mod validation;
mod containers;
mod env;
mod mounts;
mod probes;
pub(crate) mod resources;
mod volumes;
mod projected;
mod volume_files;
mod volume_claims;
mod volume_systems;
mod security;
mod windows;
mod scheduling;
mod search_domain;
mod annotations;
mod update;
mod status;
mod status_containers;
mod print;
pub(crate) mod warnings;
mod overlaps;
mod strategy;

pub(crate) use mounts::no_backsteps;
pub(crate) use print::{go_names, go_struct};
pub(crate) use scheduling::{validate_node_selector, validate_tolerations};
pub(crate) use strategy::PodStrategy;
pub(crate) use volume_claims::{validate_claim_spec, validate_template_meta};
pub(crate) use volume_defaults::{default_claim_spec, default_storage_systems};
pub(crate) use volume_systems::{validate_initiator, validate_system};
pub(crate) use volumes::validate_host_path;
