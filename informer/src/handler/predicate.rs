//! `Predicate`: selects the events that are delivered.
//!
//! ```
//! use informer::handler::{Predicate, predicates};
//! use k8s_openapi::api::core::v1::Pod;
//!
//! // What changes the desired state, or says that the object is gone, but nothing that only touches the status.
//! let predicate = Predicate::<Pod>::or(predicates::generation_changed(), predicates::labels_changed());
//! # let _ = predicate;
//! ```

use std::fmt;

use crate::object::{Cacheable, Object};

use super::event_handler::{Event, HandlerError, ResourceEventHandler};

/// Decides about events (controller-runtime's `Predicate`). Any `Fn(&Event<K>) -> bool` is one.
pub trait Predicate<K>: Send + Sync + 'static {
    /// Returns `true` if the event passes.
    fn passes(&self, event: &Event<K>) -> bool;

    /// Passes what both pass.
    fn and<P: Predicate<K>>(self, other: P) -> impl Predicate<K>
    where
        Self: Sized,
        K: 'static,
    {
        move |event: &Event<K>| self.passes(event) && other.passes(event)
    }

    /// Passes what one of them passes.
    fn or<P: Predicate<K>>(self, other: P) -> impl Predicate<K>
    where
        Self: Sized,
        K: 'static,
    {
        move |event: &Event<K>| self.passes(event) || other.passes(event)
    }

    /// Passes what this one does not. Of a predicate on changes that takes away deletions; see [`predicates`].
    fn not(self) -> impl Predicate<K>
    where
        Self: Sized,
        K: 'static,
    {
        move |event: &Event<K>| !self.passes(event)
    }
}

impl<K, F> Predicate<K> for F
where
    F: Fn(&Event<K>) -> bool + Send + Sync + 'static,
{
    fn passes(&self, event: &Event<K>) -> bool {
        self(event)
    }
}

/// The predicates of controller-runtime. Those that compare two states look at updates alone: additions and deletions
/// always pass, so that no deletion is ever lost.
pub mod predicates {
    use kube::core::Selector;

    use super::{Cacheable, Event, Predicate};

    /// Updates that change `metadata.generation`: the desired state, for most types.
    pub fn generation_changed<K: Cacheable>() -> impl Predicate<K> + Clone {
        |event: &Event<K>| {
            event
                .old()
                .is_none_or(|old| old.generation() != event.object().generation())
        }
    }

    /// Updates that change a label.
    pub fn labels_changed<K: Cacheable>() -> impl Predicate<K> + Clone {
        |event: &Event<K>| event.old().is_none_or(|old| !old.has_labels_of(event.object()))
    }

    /// Updates that change an annotation.
    pub fn annotations_changed<K: Cacheable>() -> impl Predicate<K> + Clone {
        |event: &Event<K>| event.old().is_none_or(|old| !old.has_annotations_of(event.object()))
    }

    /// Updates with a new resource version: all but resyncs, and lists that found nothing new.
    pub fn resource_version_changed<K: Cacheable>() -> impl Predicate<K> + Clone {
        |event: &Event<K>| event.old().is_none_or(|old| !old.is_same_state(event.object()))
    }

    /// Events of objects whose newest state has these labels, deletions too.
    pub fn label_selector<K: Cacheable>(selector: Selector) -> impl Predicate<K> + Clone {
        move |event: &Event<K>| event.object().matches(&selector)
    }
}

/// A handler for the objects that pass; see [`ResourceEventHandler::filtered`].
pub struct Filtered<H, F> {
    handler: H,
    passes: F,
}

impl<H, F> Filtered<H, F> {
    pub(crate) fn new(handler: H, passes: F) -> Self {
        Self { handler, passes }
    }
}

impl<H, F> fmt::Debug for Filtered<H, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filtered")
    }
}

impl<K, H, F> ResourceEventHandler<K> for Filtered<H, F>
where
    K: Cacheable,
    H: ResourceEventHandler<K>,
    F: Fn(&Object<K>) -> bool + Send + Sync + 'static,
{
    async fn on_event(&self, event: &Event<K>) -> Result<(), HandlerError> {
        let Event::Updated { old, new } = event else {
            return if (self.passes)(event.object()) {
                self.handler.on_event(event).await
            } else {
                Ok(())
            };
        };
        match ((self.passes)(old), (self.passes)(new)) {
            (true, true) => self.handler.on_event(event).await,
            (false, true) => {
                let added = Event::Added {
                    object: new.clone(),
                    is_in_initial_list: false,
                };
                self.handler.on_event(&added).await
            }
            (true, false) => {
                let deleted = Event::Deleted {
                    object: old.clone(),
                    final_state_unknown: false,
                };
                self.handler.on_event(&deleted).await
            }
            (false, false) => Ok(()),
        }
    }
}

/// A handler for the events that pass; see [`ResourceEventHandler::only`].
pub struct Only<H, P> {
    handler: H,
    predicate: P,
}

impl<H, P> Only<H, P> {
    pub(crate) fn new(handler: H, predicate: P) -> Self {
        Self { handler, predicate }
    }
}

impl<H, P> fmt::Debug for Only<H, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Only")
    }
}

impl<K, H, P> ResourceEventHandler<K> for Only<H, P>
where
    K: Cacheable,
    H: ResourceEventHandler<K>,
    P: Predicate<K>,
{
    async fn on_event(&self, event: &Event<K>) -> Result<(), HandlerError> {
        if self.predicate.passes(event) {
            self.handler.on_event(event).await
        } else {
            Ok(())
        }
    }
}
