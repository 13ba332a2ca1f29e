//! Tracing spans for long-lived parts of a process.
//!
//! The spans are root spans with the level ERROR and the target `informer::process`. They usually exist until the
//! process ends, so trace exporters should exclude this target.

use tracing::{Span, error_span};

/// Span of a running manager.
pub(crate) fn manager() -> Span {
    error_span!(target: "informer::process", parent: None, "manager")
}

/// Span of a runnable of a manager.
pub(crate) fn runnable(name: &str) -> Span {
    error_span!(target: "informer::process", parent: None, "runnable", name)
}

/// Span of a running controller. Reconciles have separate spans.
pub(crate) fn controller(controller: &str) -> Span {
    error_span!(target: "informer::process", parent: None, "controller", controller)
}

/// Span of leader election, including the work of the leader.
pub(crate) fn leader_election(lease: &str, identity: &str) -> Span {
    error_span!(target: "informer::process", parent: None, "leader_election", lease, identity)
}

/// Span of a replica in a sharding group.
pub(crate) fn sharding(group: &str, identity: &str) -> Span {
    error_span!(target: "informer::process", parent: None, "sharding", group, identity)
}

/// Span of an informer: lists, watches, and updates of its cache.
pub(crate) fn cache(source: &str) -> Span {
    error_span!(target: "informer::process", parent: None, "cache", source)
}

/// Span of an informer's event handler.
pub(crate) fn handler(handler: &str) -> Span {
    error_span!(target: "informer::process", parent: None, "handler", handler)
}
