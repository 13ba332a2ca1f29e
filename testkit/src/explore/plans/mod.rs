//! Plans: the faults of a run. Their string form is the replay string.

mod plan;
mod action;
mod point;
mod kinds;
mod faults;

pub(crate) use action::Action;
pub(crate) use faults::{
    Fault, INSTANT, Kind, LARGE, LONG, Names, OnAnswer, OnCall, OnEvent, OnRequest, OnRun, SHORT, SMALL_PAGE, Seen,
    Try, Value,
};
#[cfg(all(feature = "processes", unix))]
pub(crate) use kinds::of_processes;
pub use kinds::{Faults, clock_skew, crashes, delays, errors, overlaps, pauses, stale_watches, variants};
pub(crate) use plan::Plan;
pub(crate) use point::{Point, escaped, first_in_step, given};
