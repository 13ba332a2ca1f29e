//! Workloads at the HTTP boundary: the effects of controllers, the scheduler and the kubelets.

mod autoscaler;
mod cluster;
mod containers;
mod cron_job;
mod daemon_set;
mod deployment;
mod job;
mod kubelet;
mod kwok;
mod node_lifecycle;
mod nodes;
mod placement;
mod policies;
mod probes;
mod replica_set;
mod resource_claim;
mod service_cidr;
mod services;
mod stateful_set;
mod storage;
