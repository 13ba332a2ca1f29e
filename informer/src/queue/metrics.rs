//! `Stats`: metrics of a named queue, with client-go's metric names.

use tokio::time::Instant;

use crate::metrics::{Histogram, Samples};

/// Histogram bounds of controller-runtime, in seconds: powers of ten, starting at ten nanoseconds.
const BOUNDS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0];

#[derive(Debug)]
pub(super) struct Stats {
    /// Number of added keys, including keys that were already in the queue.
    pub(super) adds: u64,
    /// Number of keys added with a delay.
    pub(super) retries: u64,
    queued: Histogram,
    worked: Histogram,
}

/// Values of a queue's gauges at a point in time.
#[derive(Debug)]
pub(super) struct Gauges {
    /// Number of queued keys by priority.
    pub(super) depths: Vec<(i32, usize)>,
    pub(super) has_priorities: bool,
    /// Seconds for which workers have been processing keys: the sum over all keys, and the maximum.
    pub(super) under_work: (f64, f64),
}

impl Stats {
    pub(super) fn new() -> Self {
        Self {
            adds: 0,
            retries: 0,
            queued: Histogram::new(BOUNDS),
            worked: Histogram::new(BOUNDS),
        }
    }

    /// Records that a worker received a key.
    pub(super) fn took(&mut self, now: Instant, added: Option<Instant>) {
        if let Some(added) = added {
            self.queued.observe_time(now.saturating_duration_since(added));
        }
    }

    /// Records that a worker is done with a key.
    pub(super) fn finished(&mut self, now: Instant, taken: Option<Instant>) {
        if let Some(taken) = taken {
            self.worked.observe_time(now.saturating_duration_since(taken));
        }
    }

    pub(super) fn collect(&self, name: &str, gauges: &Gauges, samples: &mut Samples) {
        let labels = &[("name", name), ("controller", name)];
        for (priority, depth) in &gauges.depths {
            let priority = if gauges.has_priorities {
                priority.to_string()
            } else {
                String::new()
            };
            let labels = &[("name", name), ("controller", name), ("priority", &priority)];
            samples.gauge("workqueue_depth", "Current depth of workqueue", labels, *depth as f64);
        }
        let help = "Total number of adds handled by workqueue";
        samples.counter("workqueue_adds_total", help, labels, self.adds as f64);
        let help = "Total number of retries handled by workqueue";
        samples.counter("workqueue_retries_total", help, labels, self.retries as f64);
        let help = "How long in seconds an item stays in workqueue before being requested";
        samples.histogram("workqueue_queue_duration_seconds", help, labels, &self.queued);
        let help = "How long in seconds processing an item from workqueue takes.";
        samples.histogram("workqueue_work_duration_seconds", help, labels, &self.worked);
        let help = "How many seconds of work has been done that is in progress and hasn't been observed by \
                    work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by \
                    observing the rate at which this increases.";
        samples.gauge("workqueue_unfinished_work_seconds", help, labels, gauges.under_work.0);
        let help = "How many seconds has the longest running processor for workqueue been running.";
        samples.highest(
            "workqueue_longest_running_processor_seconds",
            help,
            labels,
            gauges.under_work.1,
        );
    }
}
