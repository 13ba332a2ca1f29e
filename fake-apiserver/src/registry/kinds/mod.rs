//! Rules of the kinds: the rules for all objects (`metadata`), the interface for the rules of a kind (`Strategy`), and
//! its implementations for the built-in kinds. This module depends on objects and types, but not on storage, verbs or
//! HTTP.

pub(crate) mod strategy;
pub(crate) mod facts;
pub(crate) mod metadata;
pub(crate) mod metadata_checks;
pub(crate) mod reset_fields;
pub(crate) mod pod;
pub(crate) mod workload_rules;
pub(crate) mod deployment;
pub(crate) mod replica_set;
pub(crate) mod stateful_set;
pub(crate) mod daemon_set;
pub(crate) mod job;
mod job_indexes;
pub(crate) mod job_policies;
pub(crate) mod job_status;
pub(crate) mod cron_job;
pub(crate) mod cron;
pub(crate) mod pod_template;
pub(crate) mod workloads;
pub(crate) mod plain;
pub(crate) mod namespace;
pub(crate) mod config_map;
pub(crate) mod secret;
pub(crate) mod service;
pub(crate) mod service_account;
pub(crate) mod node;
pub(crate) mod endpoints;
pub(crate) mod endpoint_slice;
pub(crate) mod lease;
pub(crate) mod role;
pub(crate) mod role_binding;
pub(crate) mod persistent_volume_claim;
pub(crate) mod persistent_volume;
pub(crate) mod limit_range;
pub(crate) mod resource_quota;
pub(crate) mod pod_disruption_budget;
pub(crate) mod event;
pub(crate) mod horizontal_pod_autoscaler;
pub(crate) mod ingress;
pub(crate) mod ingress_class;
pub(crate) mod network_policy;
pub(crate) mod storage_class;
pub(crate) mod csi_driver;
pub(crate) mod csi_node;
pub(crate) mod csi_storage_capacity;
pub(crate) mod priority_class;
pub(crate) mod runtime_class;
pub(crate) mod certificate;
pub(crate) mod trust_bundle;
pub(crate) mod pod_certificate;
pub(crate) mod pod_group;
pub(crate) mod storage_version;
pub(crate) mod resource_slice;
pub(crate) mod device;
pub(crate) mod device_claim;
pub(crate) mod device_taint_rule;
pub(crate) mod pool_status_request;
mod device_status;
mod device_versions;
mod request_policy;
mod admission_rules;
pub(crate) mod webhook_configuration;
pub(crate) mod admission_policy;
pub(crate) mod flow_control;
pub(crate) mod api_service;
pub(crate) mod service_network;
pub(crate) mod volume;

#[cfg(test)]
mod workload_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod storage_tests;
