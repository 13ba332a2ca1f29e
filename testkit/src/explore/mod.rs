//! Exploration: runs a scenario many times, each time with different faults.
//!
//! See [`explore`] for the guide. The module needs the feature `explore`, which is on by default.

mod explore_spec;
mod builder;
mod trace;
mod plans;
mod outcomes;
mod specs;
mod oracles;
mod gate;
mod runs;
mod search;
mod reports;
mod machine;
mod files;

/// Internals of explorations in virtual time that explorations of processes also use.
#[cfg(all(feature = "processes", unix))]
pub(crate) mod parts {
    pub(crate) use super::gate::name_in;
    pub(crate) use super::machine::{WallClock, process_time, time_of_day};
    pub(crate) use super::oracles::Oracles;
    pub(crate) use super::outcomes::{Finding, Recorded, Reference, Wrote};
    pub(crate) use super::plans::{Plan, of_processes};
    pub(crate) use super::reports::{Merged, Progress, together};
    pub(crate) use super::runs::{
        Ask, Check, Config, Flight, Inquiry, Linger, MustHold, Timing, World, real_reference,
    };
    pub(crate) use super::search::{Asides, Failures, Kinds, Limits, Runs, Search, Shard, Stop, counted, replays};
}

pub use builder::{Explore, explore};
pub use explore_spec::{explore_spec, explore_spec_of};
pub use oracles::Oracle;
pub use plans::{Faults, clock_skew, crashes, delays, errors, overlaps, pauses, stale_watches, variants};
pub use reports::{Failure, Report};
pub use search::Coverage;

pub use crate::external::{External, ExternalError, Point};
pub use crate::hooks::Unreachable;
