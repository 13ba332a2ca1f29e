//! Spans of `tracing` for the parts of a process that live as long as the process.
//!
//! They are roots, with the level ERROR and the target `informer::process`. Layers that export traces exclude them by
//! their target, because they end with the process.

use tracing::{Span, error_span};

/// The run of a manager.
pub(crate) fn manager() -> Span {
    error_span!(target: "informer::process", parent: None, "manager")
}

/// The run of one of the manager's runnables.
pub(crate) fn runnable(name: &str) -> Span {
    error_span!(target: "informer::process", parent: None, "runnable", name)
}

/// The run of a controller, without its reconciles.
pub(crate) fn controller(controller: &str) -> Span {
    error_span!(target: "informer::process", parent: None, "controller", controller)
}

/// The run of a candidate, including the leader's work.
pub(crate) fn leader_election(lease: &str, identity: &str) -> Span {
    error_span!(target: "informer::process", parent: None, "leader_election", lease, identity)
}

/// The run of a member of a group that shares keys.
pub(crate) fn sharding(group: &str, identity: &str) -> Span {
    error_span!(target: "informer::process", parent: None, "sharding", group, identity)
}

/// The run of an informer: lists, watches, and the copy.
pub(crate) fn cache(source: &str) -> Span {
    error_span!(target: "informer::process", parent: None, "cache", source)
}

/// The run of a handler of an informer's events.
pub(crate) fn handler(handler: &str) -> Span {
    error_span!(target: "informer::process", parent: None, "handler", handler)
}
