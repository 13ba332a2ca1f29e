//! `AnyEvent`: an event of any type, for filters that apply to all watches of a controller.

use std::fmt;

use kube::core::Selector;

use super::event_handler::Event;
use crate::object::{Cacheable, CachedObject};
use crate::{ObjectKey, ResourceVersion};

/// Metadata of an object of any type. It is available without decoding the object.
pub trait AnyObject: Send + Sync {
    /// Returns the namespace and name.
    fn key(&self) -> &ObjectKey;
    /// Returns the resource version.
    fn resource_version(&self) -> &ResourceVersion;
    /// Returns `metadata.generation`.
    fn generation(&self) -> Option<i64>;
    /// Returns `true` if the object has a deletion timestamp.
    fn is_deleting(&self) -> bool;
    /// Returns the value of a label.
    fn label(&self, name: &str) -> Option<String>;
    /// Returns the value of an annotation.
    fn annotation(&self, name: &str) -> Option<String>;
    /// Returns `true` if the object's labels match a selector.
    fn matches(&self, selector: &Selector) -> bool;
}

impl<K: Cacheable> AnyObject for CachedObject<K> {
    fn key(&self) -> &ObjectKey {
        Self::key(self)
    }

    fn resource_version(&self) -> &ResourceVersion {
        Self::resource_version(self)
    }

    fn generation(&self) -> Option<i64> {
        Self::generation(self)
    }

    fn is_deleting(&self) -> bool {
        Self::is_deleting(self)
    }

    fn label(&self, name: &str) -> Option<String> {
        Self::label(self, name)
    }

    fn annotation(&self, name: &str) -> Option<String> {
        Self::annotation(self, name)
    }

    fn matches(&self, selector: &Selector) -> bool {
        Self::matches(self, selector)
    }
}

/// An event of any type, for filters that apply to all watches of a controller.
///
/// ```
/// use informer::handler::AnyEvent;
///
/// /// Returns `false` for events of paused objects.
/// fn is_active(event: &AnyEvent<'_>) -> bool {
///     event.object().annotation("example.com/paused").is_none()
/// }
/// # let _: fn(&AnyEvent<'_>) -> bool = is_active;
/// ```
#[derive(Clone, Copy)]
pub struct AnyEvent<'a> {
    object: &'a dyn AnyObject,
    old: Option<&'a dyn AnyObject>,
    is_deletion: bool,
    is_replay: bool,
}

impl<'a, K: Cacheable> From<&'a Event<K>> for AnyEvent<'a> {
    fn from(event: &'a Event<K>) -> Self {
        Self {
            object: event.object(),
            old: event.old().map(|it| it as &dyn AnyObject),
            is_deletion: matches!(event, Event::Deleted { .. }),
            is_replay: event.is_replay(),
        }
    }
}

impl<'a> AnyEvent<'a> {
    /// Returns the newest state of the object.
    pub fn object(&self) -> &'a dyn AnyObject {
        self.object
    }

    /// Returns the previous state of an updated object.
    pub fn old(&self) -> Option<&'a dyn AnyObject> {
        self.old
    }

    /// Returns `true` if the object was deleted.
    pub fn is_deletion(&self) -> bool {
        self.is_deletion
    }

    /// Returns `true` if the event does not contain a new state; see [`Event::is_replay`].
    pub fn is_replay(&self) -> bool {
        self.is_replay
    }
}

impl fmt::Debug for AnyEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyEvent")
            .field("object", self.object.key())
            .field("is_deletion", &self.is_deletion)
            .finish_non_exhaustive()
    }
}
