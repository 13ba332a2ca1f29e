//! Rules for the whole workspace, and `testkit` as its users use it: with controllers of kube-rs.

mod tidy;
mod support;
mod watcher;
mod controller;
mod custom_resource;
mod time;
mod verdicts;
mod versions;
mod streams;
mod replicas;
mod worlds;
mod real;
mod migration;
mod faults;
mod workers;
mod messages;
mod trace;
mod rbac;
