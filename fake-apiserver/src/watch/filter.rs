//! `Filter`: selects the objects of a watch or a list, and determines the event for a change (rule E11).

use std::sync::Arc;

use crate::api::selector::{FieldSelector, LabelSelector};
use crate::storage::{Change, Key, KeyRange, ResourcePart, Stored};

/// The part of a resource that a filter selects by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WatchScope {
    /// All objects of the resource.
    All,
    /// One namespace.
    Namespace(Arc<str>),
    /// One object.
    Object(Key),
}

/// Selects changes by scope and selectors.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// Namespace or name to select.
    pub(crate) scope: WatchScope,
    /// `labelSelector`
    pub(crate) labels: LabelSelector,
    /// `fieldSelector`
    pub(crate) fields: FieldSelector,
}

/// The `type` of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventType {
    /// `ADDED`
    Added,
    /// `MODIFIED`
    Modified,
    /// `DELETED`
    Deleted,
}

impl EventType {
    /// Returns the event's `type` in the stream.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

impl WatchScope {
    /// Returns the range of keys in the scope.
    pub(crate) fn range(&self) -> KeyRange {
        match self {
            Self::All => KeyRange::of(None),
            Self::Namespace(namespace) => KeyRange::of(Some(namespace)),
            // The range contains only this key.
            Self::Object(key) => KeyRange {
                start: key.as_str().to_owned(),
                end: Some(format!("{}\0", key.as_str())),
            },
        }
    }

    /// Returns the scope as a [`ResourcePart`], to check whether a reader has missed changes.
    pub(crate) fn part(&self) -> ResourcePart<'_> {
        match self {
            Self::All => ResourcePart::All,
            Self::Namespace(namespace) => ResourcePart::Namespace(namespace),
            Self::Object(key) => ResourcePart::Object(key),
        }
    }

    fn contains(&self, key: &Key) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => key.namespace() == &**namespace,
            Self::Object(wanted) => wanted == key,
        }
    }
}

impl Filter {
    /// Returns `true` if the selectors match the object. Does not check the scope.
    pub(crate) fn selects(&self, object: &Stored) -> bool {
        (self.labels.is_empty() || self.labels.matches(|key| object.label(key)))
            && (self.fields.is_empty() || self.fields.matches(|field| object.field(field)))
    }

    /// Returns `true` if the filter has selectors in addition to namespace and name.
    pub(crate) fn has_selectors(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    /// Returns the event that the filter produces for a change, if any.
    pub(crate) fn event_of(&self, change: &Change) -> Option<EventType> {
        if !self.scope.contains(&change.object().key) {
            return None;
        }
        let wanted = |object: &Option<Arc<Stored>>| object.as_ref().is_some_and(|it| self.selects(it));
        match (wanted(&change.previous), wanted(&change.current)) {
            (false, true) => Some(EventType::Added),
            (true, true) => Some(EventType::Modified),
            (true, false) => Some(EventType::Deleted),
            (false, false) => None,
        }
    }
}
