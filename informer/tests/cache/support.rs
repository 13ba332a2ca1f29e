//! Helpers for tests: a handler that records its events.

use std::sync::{Arc, Mutex};

use informer::Cacheable;
use informer::cache::SharedInformer;
use informer::handler::{Event, HandlerFn, ResourceEventHandler};

/// Recorded events, in order. Clones share the events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    /// Returns a handler that records events as `added shop/a`, without versions.
    pub(crate) fn handler<K: Cacheable>(&self) -> impl ResourceEventHandler<K> + use<K> {
        let told = self.clone();
        HandlerFn::new(move |event: &Event<K>| told.push(name_of(event)))
    }

    pub(crate) fn push(&self, what: String) {
        self.0.lock().expect("the lock is not poisoned").push(what);
    }

    /// Returns the events that were recorded since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("the lock is not poisoned"))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().expect("the lock is not poisoned").len()
    }
}

/// Formats an event as `added shop/a`.
pub(crate) fn name_of<K>(event: &Event<K>) -> String {
    let key = event.object().key();
    match event {
        Event::Added {
            is_in_initial_list: true,
            ..
        } => format!("initial {key}"),
        Event::Added { .. } => format!("added {key}"),
        Event::Updated { .. } if event.is_replay() => format!("same {key}"),
        Event::Updated { .. } => format!("updated {key}"),
        Event::Deleted {
            final_state_unknown: true,
            ..
        } => format!("vanished {key}"),
        Event::Deleted { .. } => format!("deleted {key}"),
    }
}

/// Returns the keys and versions of the objects in a cache: `shop/a@7`.
pub(crate) fn stored<K: Cacheable>(informer: &SharedInformer<K>) -> Vec<String> {
    informer.lister().list().iter().map(|it| format!("{it:?}")).collect()
}
