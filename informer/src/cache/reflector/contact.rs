//! `Contact`: records when the source last sent data, and the last failure.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::Error;

/// State of a reflector's connection to its source.
#[derive(Debug, Default)]
pub(crate) struct Contact {
    /// Guards the state.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Time at which data last arrived, or of the first request; `None` before the reflector runs.
    heard: Option<Instant>,
    /// Set if the source has sent a bookmark in the middle of a watch.
    sends_bookmarks: bool,
    failures: u64,
    /// The last failure since the last complete list.
    failure: Option<Arc<str>>,
}

impl Contact {
    /// Records that data arrived from the source, or that the first request was sent.
    pub(super) fn heard(&self) {
        self.lock().heard = Some(Instant::now());
    }

    pub(super) fn saw_bookmark(&self) {
        self.lock().sends_bookmarks = true;
    }

    /// Returns `true` if the source sends bookmarks, about one per minute.
    pub(super) fn sends_bookmarks(&self) -> bool {
        self.lock().sends_bookmarks
    }

    pub(super) fn failed(&self, err: &Error) {
        let mut state = self.lock();
        state.failures += 1;
        let hint = if err.is_not_found() {
            ": is the type installed?"
        } else {
            ""
        };
        state.failure = Some(format!("{err}{hint}").into());
    }

    /// Clears the last failure after a complete list.
    pub(super) fn listed(&self) {
        self.lock().failure = None;
    }

    /// Returns the time since the last data; `None` before the reflector runs.
    pub(crate) fn silence(&self) -> Option<Duration> {
        self.lock().heard.map(|at| at.elapsed())
    }

    /// Returns the number of failed lists and of failed attempts to open a watch, plus the number of objects that could
    /// not be decoded. Errors that end an open watch are not counted.
    pub(crate) fn failures(&self) -> u64 {
        self.lock().failures
    }

    /// Returns the last failure since the last complete list.
    pub(crate) fn failure(&self) -> Option<Arc<str>> {
        self.lock().failure.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
