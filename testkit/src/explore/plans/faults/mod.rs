//! Faults. The file of a fault contains its word in replay strings, the messages at which it is tried, its effects, and
//! its description. `fault.rs` lists all faults. This module does not depend on other modules of explorations, except
//! for `trace.rs`.

mod fault;
mod row;
mod value;
mod effects;
mod tried;
mod crash;
mod fail;
mod outage;
mod conflict;
mod lose;
mod silence;
mod delay;
mod late;
mod early;
mod pause;
mod stale;
mod rewind;
mod hold;
mod cut;
mod twice;
mod half_open;
mod drop_bookmark;
mod skew;
mod small_pages;
mod large_versions;
mod restart;
mod freeze;
mod stop;
mod server_restart;

pub(crate) use effects::{Effects, OnAnswer, OnCall, OnEvent, OnRequest, OnRun};
pub(crate) use fault::Fault;
pub(crate) use large_versions::LARGE;
pub(crate) use row::{Kind, Names, Struck};
pub(crate) use small_pages::SMALL_PAGE;
pub(crate) use tried::{INSTANT, LONG, SHORT, Seen, Try};
pub(crate) use value::Value;
