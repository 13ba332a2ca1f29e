//! The small cluster life, seen through requests: what controllers, the scheduler and the kubelets make of workloads.

mod cluster;
mod cron_job;
mod daemon_set;
mod deployment;
mod job;
mod kubelet;
mod replica_set;
mod services;
mod stateful_set;
mod storage;
