//! The first exploration of a controller that nobody wrote for it: what raises no alarm, and what a report says.

mod canonical;
mod clocks;
mod ends;
mod polling;
mod runtimes;
mod shards;
mod silence;
mod statics;
mod story;
mod verdict;
mod versions;
