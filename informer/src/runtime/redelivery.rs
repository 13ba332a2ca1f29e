//! `Redelivery`: delivers the events of a controller's watch, and redelivers an event if the user's functions panic.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::select;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::cache::merge;
use crate::error::text_of_panic;
use crate::handler::Event;
use crate::metrics::{Collect, Samples};
use crate::sync::Mutex;
use crate::{Cacheable, ObjectKey};

/// Minimum and maximum pause before an event is redelivered. Each further panic doubles the pause.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(60));

/// Counts panics of the functions that map and filter the events of a controller.
#[derive(Debug)]
pub(super) struct EventPanics {
    controller: String,
    count: AtomicU64,
}

impl EventPanics {
    pub(super) fn new(controller: &str) -> Self {
        Self {
            controller: controller.to_owned(),
            count: AtomicU64::new(0),
        }
    }

    pub(super) fn controller(&self) -> &str {
        &self.controller
    }
}

impl Collect for EventPanics {
    fn collect(&self, samples: &mut Samples) {
        let help = "Panics of mapping functions, predicates and event filters per controller.";
        let (labels, count) = (
            &[("controller", self.controller.as_str())],
            self.count.load(Ordering::Relaxed),
        );
        samples.counter("informer_event_panics_total", help, labels, count as f64);
    }
}

/// Function that delivers an event.
type Deliver<K> = Box<dyn Fn(&Event<K>) + Send + Sync>;

/// Delivers the events of a watch. After a panic, the event is kept for another attempt. At most a deletion and the
/// last event after it are kept for each object.
pub(super) struct Redelivery<K> {
    deliver: Deliver<K>,
    panics: Arc<EventPanics>,
    /// Guards the events that are kept for another attempt.
    failed: Mutex<BTreeMap<ObjectKey, Failed<K>>>,
    added: Notify,
}

struct Failed<K> {
    deleted: Option<Event<K>>,
    after: Option<Event<K>>,
    pause: Duration,
    due: Instant,
}

impl<K: Cacheable> Redelivery<K> {
    /// Creates the state of a watch. `deliver` calls the user's functions.
    pub(super) fn new(panics: &Arc<EventPanics>, deliver: impl Fn(&Event<K>) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            deliver: Box::new(deliver),
            panics: Arc::clone(panics),
            failed: Mutex::default(),
            added: Notify::new(),
        })
    }

    /// Delivers an event. If one of the user's functions panics, the event will be redelivered.
    pub(super) fn deliver(&self, event: &Event<K>) {
        if self.panics(event, &mut |event| (self.deliver)(event)) {
            self.keep(event, merge);
        }
    }

    /// Delivers an object of a snapshot with `deliver`. If `deliver` panics, later attempts use the regular function of
    /// the watch. May be called while another task delivers events.
    pub(super) fn replay(&self, event: &Event<K>, deliver: &mut dyn FnMut(&Event<K>)) {
        if self.panics(event, deliver) {
            self.keep(event, add_replayed);
        }
    }

    /// Calls `deliver`. Returns `true` if it panics.
    fn panics(&self, event: &Event<K>, deliver: &mut dyn FnMut(&Event<K>)) -> bool {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| deliver(event))) else {
            return false;
        };
        self.panics.count.fetch_add(1, Ordering::Relaxed);
        let (controller, panic, key) = (self.panics.controller(), text_of_panic(&*panic), event.object().key());
        tracing::error!(
            controller,
            object = %key,
            ?event,
            panic,
            "a mapping function, predicate or event filter panicked; the event is delivered again"
        );
        true
    }

    /// Keeps an event for another attempt. `add` adds it to the events of its object.
    fn keep(&self, event: &Event<K>, add: impl FnOnce(&mut Option<Event<K>>, &mut Option<Event<K>>, Event<K>)) {
        let mut all = self.failed();
        let failed = all.entry(event.object().key().clone()).or_insert_with(|| Failed {
            deleted: None,
            after: None,
            pause: PAUSES.0,
            due: Instant::now() + PAUSES.0,
        });
        add(&mut failed.deleted, &mut failed.after, event.clone());
        drop(all);
        self.added.notify_one();
    }

    /// Redelivers events when they are due. Never returns.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let due = self.failed().values().map(|it| it.due).min();
            match due {
                None => self.added.notified().await,
                Some(due) => {
                    let _first = select(pin!(self.added.notified()), pin!(sleep_until(due))).await;
                }
            }
            self.deliver_due();
        }
    }

    fn deliver_due(&self) {
        let now = Instant::now();
        let due: Vec<_> = {
            let mut all = self.failed();
            let keys: Vec<_> = all
                .iter()
                .filter(|(_, it)| it.due <= now)
                .map(|(key, _)| key.clone())
                .collect();
            keys.into_iter().filter_map(|key| all.remove_entry(&key)).collect()
        };
        for (key, failed) in due {
            let pause = (failed.pause * 2).min(PAUSES.1);
            let events = failed.deleted.into_iter().chain(failed.after);
            let again: Vec<_> = events
                .filter(|event| self.panics(event, &mut |event| (self.deliver)(event)))
                .collect();
            if again.is_empty() {
                continue;
            }
            let mut all = self.failed();
            // Only replays, which run in other tasks, keep events in the meantime.
            let replayed = all.remove(&key).map(|it| it.deleted.into_iter().chain(it.after));
            let mut failed = Failed {
                deleted: None,
                after: None,
                pause,
                due: Instant::now() + pause,
            };
            for event in again {
                merge(&mut failed.deleted, &mut failed.after, event);
            }
            for event in replayed.into_iter().flatten() {
                add_replayed(&mut failed.deleted, &mut failed.after, event);
            }
            all.insert(key, failed);
        }
    }

    fn failed(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Failed<K>>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds an object of a snapshot to the kept events of this object, unless they are newer. Keeps the oldest previous
/// state, because the keys of the states may differ.
fn add_replayed<K: Cacheable>(deleted: &mut Option<Event<K>>, after: &mut Option<Event<K>>, event: Event<K>) {
    let kept = after.as_ref().or(deleted.as_ref()).map(Event::object);
    let is_newer = kept.is_none_or(|it| it.resource_version() < event.object().resource_version());
    if !is_newer {
        return;
    }
    let event = match after.as_ref() {
        Some(kept) => Event::Updated {
            old: kept.object().clone(),
            new: event.object().clone(),
        },
        None => event,
    };
    merge(deleted, after, event);
}

impl<K> fmt::Debug for Redelivery<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redelivery").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::resume_unwind;

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::CachedObject;
    use crate::interleave::interleave;

    fn map(name: &str, version: u64) -> CachedObject<ConfigMap> {
        let text = format!(r#"{{"metadata": {{"name": "{name}", "resourceVersion": "{version}"}}}}"#);
        CachedObject::decode(&text).expect("the object can be decoded")
    }

    /// Name and version of the object of an event.
    fn state(event: &Event<ConfigMap>) -> (String, u64) {
        let object = event.object();
        let version = object.resource_version().to_string();
        (
            object.key().name().to_owned(),
            version.parse().expect("the version is a number"),
        )
    }

    #[derive(Default)]
    struct Log {
        calls: u64,
        /// States to deliver, each with the number of states that had been delivered before.
        asked: Vec<(usize, (String, u64))>,
        delivered: Vec<(String, u64)>,
    }

    fn locked(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
        log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers an event. Two of three calls panic.
    fn attempt(log: &Mutex<Log>, seed: u64, event: &Event<ConfigMap>) {
        let mut all = locked(log);
        all.calls += 1;
        if !(all.calls + seed).is_multiple_of(3) {
            drop(all);
            resume_unwind(Box::new("oh"));
        }
        all.delivered.push(state(event));
    }

    #[test]
    fn events_and_replays_that_fail_concurrently_are_all_delivered() {
        for seed in 0..400 {
            let log = Arc::new(Mutex::new(Log::default()));
            let delivering = Arc::clone(&log);
            let panics = Arc::new(EventPanics::new("maps"));
            let redelivery = Redelivery::new(&panics, move |event| attempt(&delivering, seed, event));
            let ask = |event: &Event<ConfigMap>| {
                let mut all = locked(&log);
                let before = all.delivered.len();
                all.asked.push((before, state(event)));
            };
            let redeliver = || {
                redelivery.failed().values_mut().for_each(|it| it.due = Instant::now());
                redelivery.deliver_due();
            };
            // The cache contains a change before its event is delivered.
            let cached = AtomicU64::new(1);
            let handler = || {
                for version in 2..6 {
                    cached.store(version, Ordering::Relaxed);
                    for name in ["a", "b"] {
                        let (old, new) = (map(name, version - 1), map(name, version));
                        let event = Event::Updated { old, new };
                        ask(&event);
                        redelivery.deliver(&event);
                    }
                    redeliver();
                }
            };
            let replays = || {
                for _ in 0..4 {
                    let version = cached.load(Ordering::Relaxed);
                    for name in ["a", "b"] {
                        let event = Event::Added {
                            object: map(name, version),
                            is_in_initial_list: true,
                        };
                        ask(&event);
                        redelivery.replay(&event, &mut |event| attempt(&log, seed, event));
                    }
                }
            };
            interleave(seed, vec![Box::new(handler), Box::new(replays)]);
            while !redelivery.failed().is_empty() {
                redeliver();
            }
            let log = locked(&log);
            for (before, (name, version)) in &log.asked {
                let mut later = log.delivered[*before..].iter();
                assert!(
                    later.any(|(of, at)| of == name && at >= version),
                    "{name} at version {version} is not delivered with seed {seed}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failed_replay_does_not_replace_a_newer_event() {
        let at = |version| map("m", version);
        let redelivery = Redelivery::new(&Arc::new(EventPanics::new("maps")), |_: &Event<ConfigMap>| {
            resume_unwind(Box::new("oh"))
        });
        redelivery.deliver(&Event::Updated { old: at(3), new: at(4) });
        let old = Event::Added {
            object: at(3),
            is_in_initial_list: true,
        };
        redelivery.replay(&old, &mut |_| resume_unwind(Box::new("oh")));
        let all = redelivery.failed();
        let kept: Vec<_> = all.values().filter_map(|it| it.after.as_ref()).collect();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].object().resource_version().to_string(), "4");
    }
}
