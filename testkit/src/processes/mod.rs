//! Explores controllers that run as separate processes, in any language, in real time.
//!
//! A scenario is a YAML file that contains the controllers, the initial cluster of a run, and the steps of its users.
//! Each run has a separate API server inside this process. Each controller has a separate address, at which the gate of
//! [`explore`](crate::explore) holds, fails, delays and loses its messages. The search, the oracles and replay strings
//! are the same as for controllers inside the process. Runs take real time, and many of them run concurrently.
//!
//! The command is `drydock explore scenario.yaml`. [`Scenario::explore`] does the same in a test:
//!
//! ```no_run
//! use testkit::processes::{Options, Scenario};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options {
//!     reaper: Some("target/debug/drydock".into()),
//!     ..Options::default()
//! };
//! let report = Scenario::read("scenario.yaml")?.explore(&options)?;
//! assert!(report.is_success(), "{report}");
//! # Ok(())
//! # }
//! ```
//!
//! Systems other than Unix are not supported.
#![doc = include_str!("../../docs/processes.md")]

mod command;
mod init;
mod search;
mod read;
mod report;
mod hints;
mod merge;
mod runner;
mod checks;
mod check;
mod steps;
mod shell;
mod step;
mod objects;
mod webhooks;
mod process;
mod stop;
mod address;
mod election;
mod leases;
mod ready;
mod output;
mod reaper;
mod files;
mod fill;
mod pace;
mod progress;
mod usage;
mod network;
mod stub;
mod stubs;
mod program;
mod dns;
mod old_crds;
mod scenario;
mod time;

pub use command::main;
pub use read::ScenarioError;
pub use report::Report;
pub use scenario::Scenario;
pub use search::Options;
