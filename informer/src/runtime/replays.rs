//! `Replays`: enqueues the keys of all objects in the watched caches of a controller again.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Function that calls its argument with each key of a watch.
pub(super) type Replay<R> = Arc<dyn Fn(&mut dyn FnMut(R)) + Send + Sync>;

/// A watch, and a function that returns `true` if the watch has ended.
struct Watched<R> {
    replay: Replay<R>,
    has_ended: Box<dyn Fn() -> bool + Send + Sync>,
}

/// The active watches of a controller. Clones share them.
pub(super) struct Replays<R>(Arc<Mutex<Vec<Watched<R>>>>);

impl<R> Replays<R> {
    /// Adds a watch, and removes watches that have ended, for example because their cluster was disengaged.
    pub(super) fn add(&self, replay: Replay<R>, has_ended: impl Fn() -> bool + Send + Sync + 'static) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|it| !(it.has_ended)());
        all.push(Watched {
            replay,
            has_ended: Box::new(has_ended),
        });
    }

    /// Calls `add` with the keys of all objects in the watched caches.
    pub(super) fn run(&self, mut add: impl FnMut(R)) {
        let replays: Vec<_> = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|it| !(it.has_ended)());
            all.iter().map(|it| Arc::clone(&it.replay)).collect()
        };
        for replay in replays {
            replay(&mut add);
        }
    }
}

impl<R> Default for Replays<R> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<R> Clone for Replays<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> fmt::Debug for Replays<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watches = self.0.lock().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("Replays").field("watches", &watches).finish()
    }
}
