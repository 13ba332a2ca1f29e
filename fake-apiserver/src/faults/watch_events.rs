//! Events that a test injects into a watch, and pending events of a held watch.

use crate::api::json::Value;
use crate::api::status::Status;

/// The `type` of a watch event.
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
    /// Returns the event's `type` in the stream.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }

    /// Parses the event's `type`; the reverse of [`WatchEventKind::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Added, Self::Modified, Self::Deleted, Self::Bookmark, Self::Error]
            .into_iter()
            .find(|it| it.as_str() == text)
    }
}

/// An item that a test injects into a watch.
#[derive(Clone, Debug)]
pub(crate) enum Injected {
    /// An event. It may contradict the stored objects.
    Event(WatchEventKind, Value),
    /// A bookmark at the last delivered version.
    Bookmark,
    /// The withheld bookmark that ends the initial state.
    InitialEnd,
    /// An ERROR event, followed by the end of the watch.
    Error(Box<Status>),
    /// An ERROR event with 410 Expired, followed by the end of the watch.
    Expire,
    /// The end of the watch.
    End,
    /// A broken connection.
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
