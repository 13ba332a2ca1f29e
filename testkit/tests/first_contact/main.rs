//! The first exploration of an existing controller: correct behaviour that must pass, and the wording of reports.

mod canonical;
mod clocks;
mod early;
mod edges;
mod failures;
mod ends;
mod polling;
mod runtimes;
mod shards;
mod silence;
mod statics;
mod story;
mod verdict;
mod versions;
