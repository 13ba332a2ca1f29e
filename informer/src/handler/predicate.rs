//! `Predicate`: filters events.
//!
//! ```
//! use informer::handler::{Predicate, predicates};
//! use k8s_openapi::api::core::v1::Pod;
//!
//! // Drops updates that change neither the spec nor the labels, such as updates of the status.
//! let predicate = Predicate::<Pod>::or(predicates::generation_changed(), predicates::labels_changed());
//! # let _ = predicate;
//! ```

use std::fmt;

use crate::object::{Cacheable, CachedObject};

use super::event_handler::{Event, HandlerError, ResourceEventHandler};

/// Filters events (controller-runtime's `Predicate`). Implemented for all `Fn(&Event<K>) -> bool`.
pub trait Predicate<K>: Send + Sync + 'static {
    /// Returns `true` if the event passes the filter.
    fn passes(&self, event: &Event<K>) -> bool;

    /// Returns a predicate that passes events that pass both predicates.
    fn and<P: Predicate<K>>(self, other: P) -> impl Predicate<K>
    where
        Self: Sized,
        K: 'static,
    {
        move |event: &Event<K>| self.passes(event) && other.passes(event)
    }

    /// Returns a predicate that passes events that pass at least one of the two predicates.
    fn or<P: Predicate<K>>(self, other: P) -> impl Predicate<K>
    where
        Self: Sized,
        K: 'static,
    {
        move |event: &Event<K>| self.passes(event) || other.passes(event)
    }

    /// Returns a predicate that passes events that do not pass this predicate. The negation of a predicate that
    /// compares states drops additions and deletions; see [`predicates`].
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

/// The predicates of controller-runtime. Predicates that compare two states only filter updates: additions and
/// deletions always pass, so that deletions are not lost.
pub mod predicates {
    use kube::core::Selector;

    use super::{Cacheable, Event, Predicate};

    /// Drops updates that do not change `metadata.generation`, which most types increment when the spec changes.
    pub fn generation_changed<K: Cacheable>() -> impl Predicate<K> + Clone {
        |event: &Event<K>| {
            event
                .old()
                .is_none_or(|old| old.generation() != event.object().generation())
        }
    }

    /// Drops updates that do not change a label.
    pub fn labels_changed<K: Cacheable>() -> impl Predicate<K> + Clone {
        |event: &Event<K>| event.old().is_none_or(|old| !old.has_labels_of(event.object()))
    }

    /// Drops updates that do not change an annotation.
    pub fn annotations_changed<K: Cacheable>() -> impl Predicate<K> + Clone {
        |event: &Event<K>| event.old().is_none_or(|old| !old.has_annotations_of(event.object()))
    }

    /// Drops updates that do not change the resource version: resyncs, and relists of unchanged objects.
    pub fn resource_version_changed<K: Cacheable>() -> impl Predicate<K> + Clone {
        |event: &Event<K>| event.old().is_none_or(|old| !old.is_same_state(event.object()))
    }

    /// Passes events, including deletions, of objects whose newest state matches a label selector.
    pub fn label_selector<K: Cacheable>(selector: Selector) -> impl Predicate<K> + Clone {
        move |event: &Event<K>| event.object().matches(&selector)
    }
}

/// A handler that only receives objects for which a function returns `true`; see [`ResourceEventHandler::filtered`].
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
    F: Fn(&CachedObject<K>) -> bool + Send + Sync + 'static,
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

/// A handler that only receives events that pass a predicate; see [`ResourceEventHandler::only`].
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
