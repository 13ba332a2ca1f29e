//! `HandlerFailures`: counts the failed calls of an informer's handlers.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::metrics::Samples;

/// Numbers of failed calls, by name of the handler. Handlers with the same name share a counter.
#[derive(Debug, Default)]
pub(crate) struct HandlerFailures(Mutex<BTreeMap<String, u64>>);

impl HandlerFailures {
    /// Adds a handler.
    pub(crate) fn add(&self, handler: &str) {
        self.counts().entry(handler.to_owned()).or_default();
    }

    /// Removes a handler, unless one of its calls has failed: counters must not decrease.
    pub(crate) fn remove(&self, handler: &str) {
        self.counts().retain(|name, count| name != handler || *count > 0);
    }

    /// Counts a failed call.
    pub(crate) fn count(&self, handler: &str) {
        *self.counts().entry(handler.to_owned()).or_default() += 1;
    }

    /// Adds the metric. `name` and `kind` are the labels `name` and `type` of the informer.
    pub(crate) fn collect(&self, name: &str, kind: &str, samples: &mut Samples) {
        let help = "Events for which a handler of the informer returned an error or panicked.";
        for (handler, count) in self.counts().iter() {
            let labels = &[("name", name), ("type", kind), ("handler", handler.as_str())];
            samples.counter("informer_handler_failures_total", help, labels, *count as f64);
        }
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
