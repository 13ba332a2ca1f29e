//! Event handlers, predicates, and mappings from events to keys.
//!
//! This module does not depend on the source of the events or on the code that uses the keys.

mod event_handler;
mod predicate;
mod any_event;
pub mod enqueue;

pub use any_event::{AnyEvent, AnyObject};
pub use enqueue::{Enqueued, ToKeys};
pub use event_handler::{Event, HandlerError, HandlerFn, ResourceEventHandler};
pub use predicate::{Filtered, Only, Predicate, predicates};
