//! The small cluster life, seen through requests: what controllers, the scheduler and the kubelets make of workloads.

mod cluster;
mod deployment;

