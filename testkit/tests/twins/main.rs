//! Small controllers, each in a healthy variant and a variant with a bug: exploration with the defaults finds the bug
//! for the right reason, and reports nothing for the healthy variant.
//!
//! Each file has the controllers of one topic. A scenario is an async function with two arguments: a cluster, and
//! whether the controller is healthy. `twins!` generates two tests from it.

#![expect(clippy::print_stdout, reason = "a table of all twins is for reading")]

#[macro_use]
mod support;
mod arrivals;
mod attempts;
mod backups;
mod batches;
mod bindings;
mod caches;
mod clouds;
mod conflicts;
mod copies;
mod finalizers;
mod generated;
mod histories;
mod idioms;
mod kube_idioms;
mod late_writes;
mod locks;
mod moves;
mod odd_idioms;
mod order;
mod outside;
mod progress;
mod registries;
mod releases;
mod reports;
mod retries;
mod rollouts;
mod rotations;
mod sets;
mod sharing;
mod sites;
mod slots;
mod statuses;
mod stored_versions;
mod tenants;
mod timers;
mod views;
mod words;
mod workloads;
