//! `Metrics`: counts requests, watches and objects under the names of kube-apiserver, for `/metrics`. It does not read
//! the clock; callers pass the time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

mod exposition;
mod inflight;
mod labels;
mod scrape;

pub(crate) use inflight::{InflightLimits, Seat};
pub(crate) use labels::Labels;
pub(crate) use scrape::answer;

use inflight::Inflight;

/// Upper bounds of the buckets of `apiserver_request_duration_seconds`.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// Counters of a server. Their memory grows with the number of distinct labels, not with the number of requests.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// The counters. Watches increment their counters of events without this lock.
    counters: Mutex<Counters>,
    /// Requests in progress.
    inflight: Arc<Inflight>,
}

#[derive(Debug, Default)]
struct Counters {
    /// Counters of completed requests, by their labels.
    answered: BTreeMap<Labels, Answered>,
    /// Numbers of open watches and connections, by their labels.
    long_running: BTreeMap<Labels, u64>,
    /// Events sent to watchers, by group, version and resource.
    events: BTreeMap<[String; 3], Arc<AtomicU64>>,
}

/// Counters of responses to requests with the same labels.
#[derive(Debug, Default)]
struct Answered {
    by_code: BTreeMap<u16, u64>,
    durations: Durations,
}

/// A histogram of durations with the buckets in [`BUCKETS`].
#[derive(Debug, Default)]
struct Durations {
    counts: [u64; BUCKETS.len()],
    total: u64,
    sum: f64,
}

impl Durations {
    fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        if let Some(bucket) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            self.counts[bucket] += 1;
        }
        self.total += 1;
        self.sum += seconds;
    }
}

impl Metrics {
    /// Creates metrics with these limits on the number of concurrent requests.
    pub(crate) fn new(limits: InflightLimits) -> Self {
        Self {
            inflight: Arc::new(Inflight::new(limits)),
            ..Self::default()
        }
    }

    /// Counts a request as in progress; returns `None` if the limit is reached.
    pub(crate) fn take_seat(&self, is_mutating: bool, now: Duration) -> Option<Seat> {
        self.inflight.take(is_mutating, now)
    }

    /// Counts a response.
    pub(crate) fn count(&self, labels: Labels, code: u16, took: Duration) {
        let mut counters = self.lock();
        let answered = counters.answered.entry(labels).or_default();
        *answered.by_code.entry(code).or_default() += 1;
        answered.durations.observe(took);
    }

    /// Counts a request that was refused because of the limit on concurrent requests. Its duration is not recorded.
    pub(crate) fn count_dropped(&self, labels: Labels, code: u16) {
        let mut counters = self.lock();
        let answered = counters.answered.entry(labels).or_default();
        *answered.by_code.entry(code).or_default() += 1;
    }

    /// Counts the start of a watch or a connection.
    pub(crate) fn begin(&self, labels: Labels) {
        *self.lock().long_running.entry(labels).or_default() += 1;
    }

    /// Counts the end of a watch or a connection.
    pub(crate) fn end(&self, labels: &Labels) {
        if let Some(count) = self.lock().long_running.get_mut(labels) {
            *count = count.saturating_sub(1);
        }
    }

    /// Returns the counter of events sent to watchers of a resource.
    pub(crate) fn events(&self, group: &str, version: &str, resource: &str) -> Arc<AtomicU64> {
        let key = [group, version, resource].map(str::to_owned);
        Arc::clone(self.lock().events.entry(key).or_default())
    }

    /// Resets the counters. Open watches and requests are kept.
    fn reset(&self) {
        let mut counters = self.lock();
        counters.answered.clear();
        counters.long_running.retain(|_, count| *count > 0);
        // Open watches still refer to their counters, so these are set to 0 instead.
        counters.events.retain(|_, count| Arc::strong_count(count) > 1);
        counters.events.values().for_each(|it| it.store(0, Ordering::Relaxed));
    }

    fn lock(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
