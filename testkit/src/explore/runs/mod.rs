//! A run executes the scenario in a cluster with the faults of a plan, and returns the outcome.

mod judge;
mod shown;
mod baseline;
mod run;
mod config;
mod timing;
mod world;
mod harness;
mod hooks;
mod milestones;
mod wait;
mod early;
mod hasty;
mod client;
mod answer;
mod watch;
mod late;
mod stale;
mod workers;
mod notes;
mod doings;
mod digest;
mod flight;
mod exits;
#[cfg(all(feature = "processes", unix))]
mod real_time;
#[cfg(all(feature = "processes", unix))]
mod webhook;

pub(crate) use baseline::{reference, shortened_reference};
#[cfg(all(feature = "processes", unix))]
pub(crate) use config::{Ask, Inquiry, Linger, MustHold};
pub(crate) use config::{Check, Config, Role, Scenario, early_then_usual};
pub(crate) use flight::Flight;
pub(crate) use judge::{judged, sequence};
#[cfg(all(feature = "processes", unix))]
pub(crate) use real_time::real_reference;
pub(crate) use run::run;
pub(crate) use shown::show;
pub(crate) use timing::Timing;
pub(crate) use world::World;
