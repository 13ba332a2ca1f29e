//! `ResourceEventHandler`: receives events of one type.

use std::error::Error as StdError;
use std::fmt;

use crate::object::{Cacheable, CachedObject};

use super::predicate::{Filtered, Only, Predicate};

/// Error of a handler, of any type.
pub type HandlerError = Box<dyn StdError + Send + Sync>;

/// A change of an object, for handlers and predicates.
///
/// The variant depends on the contents of the cache, not on the server's event: an object that was not in the cache is
/// [`Added`](Self::Added), even if the server reports it as modified.
pub enum Event<K> {
    /// The object was not in the cache.
    Added {
        /// The current state of the object.
        object: CachedObject<K>,
        /// Set if the object existed when the handler was added or the informer started.
        is_in_initial_list: bool,
    },
    /// The object was already in the cache. If an object is deleted and recreated between two lists, this is reported
    /// as an update with a different uid.
    Updated {
        /// The previous state of the object.
        old: CachedObject<K>,
        /// The current state of the object. For resyncs, it is the same as the previous state.
        new: CachedObject<K>,
    },
    /// The object was deleted.
    Deleted {
        /// The last known state of the object.
        object: CachedObject<K>,
        /// Set if the object's last state may be unknown, for example because the object was missing from a new list
        /// (client-go's `DeletedFinalStateUnknown`).
        final_state_unknown: bool,
    },
}

impl<K> Event<K> {
    /// Returns `true` if the event does not contain a new state: it is from the initial list, or it is an update
    /// without a change. Priority queues process other events first.
    pub fn is_replay(&self) -> bool {
        match self {
            Self::Added { is_in_initial_list, .. } => *is_in_initial_list,
            Self::Updated { old, new } => old.is_same_state(new),
            Self::Deleted { .. } => false,
        }
    }

    /// Returns the newest state of the object.
    pub fn object(&self) -> &CachedObject<K> {
        match self {
            Self::Added { object, .. } | Self::Deleted { object, .. } => object,
            Self::Updated { new, .. } => new,
        }
    }

    /// Returns the previous state of an updated object.
    pub fn old(&self) -> Option<&CachedObject<K>> {
        match self {
            Self::Updated { old, .. } => Some(old),
            Self::Added { .. } | Self::Deleted { .. } => None,
        }
    }
}

impl<K> Clone for Event<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added {
                object,
                is_in_initial_list,
            } => Self::Added {
                object: object.clone(),
                is_in_initial_list: *is_in_initial_list,
            },
            Self::Updated { old, new } => Self::Updated {
                old: old.clone(),
                new: new.clone(),
            },
            Self::Deleted {
                object,
                final_state_unknown,
            } => Self::Deleted {
                object: object.clone(),
                final_state_unknown: *final_state_unknown,
            },
        }
    }
}

impl<K> fmt::Debug for Event<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added {
                object,
                is_in_initial_list: true,
            } => write!(f, "initial {object:?}"),
            Self::Added { object, .. } => write!(f, "added {object:?}"),
            Self::Updated { old, new } => write!(f, "updated {new:?} from {}", old.resource_version()),
            Self::Deleted {
                object,
                final_state_unknown: true,
            } => write!(f, "deleted {object:?}, final state unknown"),
            Self::Deleted { object, .. } => write!(f, "deleted {object:?}"),
        }
    }
}

/// Receives the events of one type (client-go's `ResourceEventHandler`).
///
/// For each object, a handler receives some or all of its states, in order and including the latest one, and its
/// deletion. If an object was deleted and created again while the cache missed both events, the handler receives an
/// update. The order between different objects is undefined. The cache is at least as new as the delivered event. A
/// handler receives one event at a time; slow handlers do not delay other handlers.
///
/// The methods can be written as `async fn`. Errors and panics are logged and counted
/// ([`HandlerRegistration::failures`](crate::cache::HandlerRegistration::failures), and the metric
/// `informer_handler_failures_total`), but failed events are not delivered again. To retry an event, add a key to a
/// queue.
///
/// ```
/// use informer::CachedObject;
/// use informer::handler::{HandlerError, ResourceEventHandler};
/// use k8s_openapi::api::core::v1::Pod;
///
/// struct Printer;
///
/// impl ResourceEventHandler<Pod> for Printer {
///     async fn on_add(&self, object: &CachedObject<Pod>, is_in_initial_list: bool) -> Result<(), HandlerError> {
///         let pod = object.typed()?; // decoded here, once for all handlers
///         let node = pod.spec.as_ref().and_then(|it| it.node_name.as_deref());
///         println!("{} on {node:?}, initial: {is_in_initial_list}", object.key());
///         Ok(())
///     }
/// }
/// ```
pub trait ResourceEventHandler<K: Cacheable>: Send + Sync + 'static {
    /// Handles an object that was not in the cache.
    fn on_add(
        &self,
        object: &CachedObject<K>,
        is_in_initial_list: bool,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send {
        let _ = (object, is_in_initial_list);
        async { Ok(()) }
    }

    /// Handles an update of an object. For resyncs, both states are the same.
    fn on_update(
        &self,
        old: &CachedObject<K>,
        new: &CachedObject<K>,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send {
        let _ = (old, new);
        async { Ok(()) }
    }

    /// Handles a deletion; see [`Event::Deleted`].
    fn on_delete(
        &self,
        object: &CachedObject<K>,
        final_state_unknown: bool,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send {
        let _ = (object, final_state_unknown);
        async { Ok(()) }
    }

    /// Handles any event. The default implementation calls the method for the event's variant.
    fn on_event(&self, event: &Event<K>) -> impl Future<Output = Result<(), HandlerError>> + Send {
        async move {
            match event {
                Event::Added {
                    object,
                    is_in_initial_list,
                } => self.on_add(object, *is_in_initial_list).await,
                Event::Updated { old, new } => self.on_update(old, new).await,
                Event::Deleted {
                    object,
                    final_state_unknown,
                } => self.on_delete(object, *final_state_unknown).await,
            }
        }
    }

    /// Wraps the handler so that it only receives objects for which `passes` returns `true` (client-go's
    /// `FilteringResourceEventHandler`). If an update makes an object pass, the handler receives an addition; if an
    /// update makes an object no longer pass, the handler receives a deletion.
    fn filtered<F>(self, passes: F) -> Filtered<Self, F>
    where
        Self: Sized,
        F: Fn(&CachedObject<K>) -> bool + Send + Sync + 'static,
    {
        Filtered::new(self, passes)
    }

    /// Wraps the handler so that it only receives events that pass the `predicate`.
    fn only<P>(self, predicate: P) -> Only<Self, P>
    where
        Self: Sized,
        P: Predicate<K>,
    {
        Only::new(self, predicate)
    }
}

/// A handler that calls a function for each event (client-go's `ResourceEventHandlerDetailedFuncs`).
///
/// ```
/// use informer::handler::{Event, HandlerFn};
/// use k8s_openapi::api::core::v1::Pod;
///
/// let handler = HandlerFn::new(|event: &Event<Pod>| println!("{event:?}"));
/// ```
pub struct HandlerFn<F>(F);

impl<F> HandlerFn<F> {
    /// Creates a handler that calls `f` for each event.
    pub fn new<K: Cacheable>(f: F) -> Self
    where
        F: Fn(&Event<K>) + Send + Sync + 'static,
    {
        Self(f)
    }
}

impl<F> fmt::Debug for HandlerFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandlerFn")
    }
}

impl<K, F> ResourceEventHandler<K> for HandlerFn<F>
where
    K: Cacheable,
    F: Fn(&Event<K>) + Send + Sync + 'static,
{
    async fn on_event(&self, event: &Event<K>) -> Result<(), HandlerError> {
        (self.0)(event);
        Ok(())
    }
}
