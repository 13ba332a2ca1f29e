//! Handlers of changes, and the mapping of a change to the keys of the affected objects.
//!
//! It depends on objects and events, but not on their source or on the use of the keys.

mod event_handler;
mod predicate;
mod any_event;
pub mod enqueue;

pub use any_event::{AnyEvent, AnyObject};
pub use enqueue::{Enqueued, ToKeys};
pub use event_handler::{Event, HandlerError, HandlerFn, ResourceEventHandler};
pub use predicate::{Filtered, Only, Predicate, predicates};
