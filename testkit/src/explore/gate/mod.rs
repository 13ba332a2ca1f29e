//! The gate of a run: it decides which faults take effect at which messages, and records the messages.

mod decide;
mod calls;
mod points;
mod messages;
mod life;
mod owners;
mod pages;
mod arrivals;

pub(crate) use calls::CallTicket;
pub(crate) use decide::Gate;
pub(crate) use life::{Life, Shown};
pub(crate) use messages::{Answer, Line, REVISION, contains, look_inside, name_in, read};
pub(crate) use owners::Deletion;
pub(crate) use pages::Page;
