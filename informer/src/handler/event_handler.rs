//! `ResourceEventHandler`: receives the changes of a type.

use std::error::Error as StdError;
use std::fmt;

use crate::object::{Cacheable, Object};

use super::predicate::{Filtered, Only, Predicate};

/// Error of a handler; any error will do.
pub type HandlerError = Box<dyn StdError + Send + Sync>;

/// One change of one object, as handlers and predicates see it.
///
/// It is decided by what the cache holds and not by what the server said: an object that the cache did not know was
/// added, even if the server calls it modified.
pub enum Event<K> {
    /// The cache did not have the object.
    Added {
        /// As it is now.
        object: Object<K>,
        /// It was there when the handler, or the informer, began.
        is_in_initial_list: bool,
    },
    /// The cache had it. An object that was deleted and made anew between two lists is an update with another uid.
    Updated {
        /// As it was.
        old: Object<K>,
        /// As it is now. A resync tells the same version twice.
        new: Object<K>,
    },
    /// It is gone.
    Deleted {
        /// The last state that is known.
        object: Object<K>,
        /// A new list did not have it: there may have been later states (client-go's `DeletedFinalStateUnknown`).
        final_state_unknown: bool,
    },
}

impl<K> Event<K> {
    /// Returns `true` if it carries no new state: an object of the initial list, or an update without a change. A queue
    /// with priorities lets real changes pass first.
    pub fn is_replay(&self) -> bool {
        match self {
            Self::Added { is_in_initial_list, .. } => *is_in_initial_list,
            Self::Updated { old, new } => old.is_same_state(new),
            Self::Deleted { .. } => false,
        }
    }

    /// The newest state of the object.
    pub fn object(&self) -> &Object<K> {
        match self {
            Self::Added { object, .. } | Self::Deleted { object, .. } => object,
            Self::Updated { new, .. } => new,
        }
    }

    /// The state before, of an update.
    pub fn old(&self) -> Option<&Object<K>> {
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

/// Receives the changes of one type (client-go's `ResourceEventHandler`).
///
/// Guarantees for each object: the delivered states are a subsequence of its states, in order, and end with the latest;
/// its deletion is always delivered. There is no order between objects. The cache is at least as new as the delivered
/// event. A handler receives one event at a time, and a slow one delays only itself.
///
/// The methods are written as `async fn`. An error or a panic is logged and counted
/// ([`HandlerRegistration::failures`](crate::cache::HandlerRegistration::failures)); the next change is delivered all
/// the same, and no event is delivered twice: to retry, put a key into a queue.
///
/// ```
/// use informer::Object;
/// use informer::handler::{HandlerError, ResourceEventHandler};
/// use k8s_openapi::api::core::v1::Pod;
///
/// struct Printer;
///
/// impl ResourceEventHandler<Pod> for Printer {
///     async fn on_add(&self, object: &Object<Pod>, is_in_initial_list: bool) -> Result<(), HandlerError> {
///         let pod = object.typed()?; // decoded here, once for all handlers
///         let node = pod.spec.as_ref().and_then(|it| it.node_name.as_deref());
///         println!("{} on {node:?}, initial: {is_in_initial_list}", object.key());
///         Ok(())
///     }
/// }
/// ```
pub trait ResourceEventHandler<K: Cacheable>: Send + Sync + 'static {
    /// An object that the cache did not have.
    fn on_add(
        &self,
        object: &Object<K>,
        is_in_initial_list: bool,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send {
        let _ = (object, is_in_initial_list);
        async { Ok(()) }
    }

    /// A new state of an object; at a resync, the same state again.
    fn on_update(&self, old: &Object<K>, new: &Object<K>) -> impl Future<Output = Result<(), HandlerError>> + Send {
        let _ = (old, new);
        async { Ok(()) }
    }

    /// The object is gone; see [`Event::Deleted`].
    fn on_delete(
        &self,
        object: &Object<K>,
        final_state_unknown: bool,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send {
        let _ = (object, final_state_unknown);
        async { Ok(()) }
    }

    /// Called for each change; calls the method of the event's kind.
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

    /// Wraps the handler so that it only receives objects that `passes` accepts (client-go's
    /// `FilteringResourceEventHandler`). An object that comes to pass is added for it, and one that no longer passes is
    /// deleted.
    ///
    /// An object that comes to pass is added for it, and one that no longer passes is deleted.
    fn filtered<F>(self, passes: F) -> Filtered<Self, F>
    where
        Self: Sized,
        F: Fn(&Object<K>) -> bool + Send + Sync + 'static,
    {
        Filtered::new(self, passes)
    }

    /// Wraps the handler so that it only receives events that `predicate` accepts.
    fn only<P>(self, predicate: P) -> Only<Self, P>
    where
        Self: Sized,
        P: Predicate<K>,
    {
        Only::new(self, predicate)
    }
}

/// A handler made of a function that is called for each event (client-go's `ResourceEventHandlerDetailedFuncs`).
///
/// ```
/// use informer::handler::{Event, HandlerFn};
/// use k8s_openapi::api::core::v1::Pod;
///
/// let handler = HandlerFn::new(|event: &Event<Pod>| println!("{event:?}"));
/// ```
pub struct HandlerFn<F>(F);

impl<F> HandlerFn<F> {
    /// Calls `f` for each event.
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
