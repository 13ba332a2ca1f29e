//! Oracles. Each file contains one oracle: its name, when it is checked, and the check. `oracle.rs` lists them.

mod oracle;
mod row;
mod facts;
mod end_state;
mod observed_generation;
mod generated_values;
mod pages;
mod idempotence;
mod owners;
mod rollback;
mod creates_and_deletes;
mod hot_loop;
mod deletes_by_name;

pub(crate) use facts::Facts;
pub use oracle::Oracle;
pub(crate) use oracle::Oracles;
pub(crate) use rollback::returned;
pub(crate) use row::{Recurring, Restarted};
