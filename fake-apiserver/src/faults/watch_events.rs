//! Events that a test injects into a watch, and events that a held watch has not delivered.

use crate::api::json::Value;
use crate::api::status::Status;

/// The `type` of an injected event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEventKind {
    /// `ADDED`
    Added,
    /// `MODIFIED`
    Modified,
    /// `DELETED`
    Deleted,
    /// `BOOKMARK`
    Bookmark,
    /// `ERROR`, with a Status as its object.
    Error,
}

impl WatchEventKind {
    /// The event's `type` in the stream.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }

    /// The reverse of [`WatchEventKind::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Added, Self::Modified, Self::Deleted, Self::Bookmark, Self::Error]
            .into_iter()
            .find(|it| it.as_str() == text)
    }
}

/// Content that a test injects into a watch.
#[derive(Clone, Debug)]
pub(crate) enum Injected {
    /// An event, whether or not it reflects the stored objects.
    Event(WatchEventKind, Value),
    /// A bookmark at the last delivered version.
    Bookmark,
    /// The bookmark that ends the initial state, if it is withheld.
    InitialEnd,
    /// An ERROR event, then the end.
    Error(Box<Status>),
    /// An ERROR event 410 Expired, then the end.
    Expire,
    /// The end.
    End,
    /// The end of the connection.
    Cut,
}

/// A pending event of a held watch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldEvent {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub kind: &'static str,
    /// Namespace of the object; empty for cluster-scoped objects, bookmarks and errors.
    pub namespace: String,
    /// Name of the object; empty for bookmarks and errors.
    pub name: String,
    /// The event's resourceVersion; 0 for errors.
    pub revision: u64,
}
