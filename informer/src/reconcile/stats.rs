//! `Stats`: metrics of a controller, with controller-runtime's metric names.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::metrics::{Collect, Histogram, Samples};

/// Histogram bounds of controller-runtime, in seconds.
const BOUNDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

/// Outcome of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Success,
    RequeueAfter,
    Requeue,
    Error,
    TerminalError,
}

#[derive(Debug)]
pub(super) struct Stats {
    name: String,
    concurrency: usize,
    figures: Mutex<Figures>,
}

#[derive(Debug)]
struct Figures {
    success: u64,
    requeue_after: u64,
    requeue: u64,
    errors: u64,
    terminal_errors: u64,
    panics: u64,
    timeouts: u64,
    active: u64,
    took: Histogram,
}

impl Stats {
    pub(super) fn new(name: &str, concurrency: usize) -> Self {
        Self {
            name: name.to_owned(),
            concurrency,
            figures: Mutex::new(Figures {
                success: 0,
                requeue_after: 0,
                requeue: 0,
                errors: 0,
                terminal_errors: 0,
                panics: 0,
                timeouts: 0,
                active: 0,
                took: Histogram::new(BOUNDS),
            }),
        }
    }

    pub(super) fn started(&self) {
        self.with(|it| it.active += 1);
    }

    pub(super) fn ended(&self, took: Duration, ending: Ending) {
        self.with(|it| {
            it.active -= 1;
            it.took.observe_time(took);
            match ending {
                Ending::Success => it.success += 1,
                Ending::RequeueAfter => it.requeue_after += 1,
                Ending::Requeue => it.requeue += 1,
                Ending::Error => it.errors += 1,
                Ending::TerminalError => {
                    it.errors += 1;
                    it.terminal_errors += 1;
                }
            }
        });
    }

    /// Counts an error for a key that was held back for too long.
    pub(super) fn held_too_long(&self) {
        self.with(|it| it.errors += 1);
    }

    pub(super) fn panicked(&self) {
        self.with(|it| it.panics += 1);
    }

    pub(super) fn timed_out(&self) {
        self.with(|it| it.timeouts += 1);
    }

    fn with(&self, count: impl FnOnce(&mut Figures)) {
        count(&mut self.figures.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Collect for Stats {
    fn collect(&self, samples: &mut Samples) {
        let it = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        let name = self.name.as_str();
        let labels = &[("controller", name)];
        let help = "Total number of reconciliations per controller";
        let results = [
            ("error", it.errors),
            ("requeue", it.requeue),
            ("requeue_after", it.requeue_after),
            ("success", it.success),
        ];
        for (result, count) in results {
            let labels = &[("controller", name), ("result", result)];
            samples.counter("controller_runtime_reconcile_total", help, labels, count as f64);
        }
        let counters = [
            (
                "controller_runtime_reconcile_errors_total",
                "Total number of reconciliation errors per controller",
                it.errors,
            ),
            (
                "controller_runtime_terminal_reconcile_errors_total",
                "Total number of terminal reconciliation errors per controller",
                it.terminal_errors,
            ),
            (
                "controller_runtime_reconcile_panics_total",
                "Total number of reconciliation panics per controller",
                it.panics,
            ),
            (
                "controller_runtime_reconcile_timeouts_total",
                "Total number of reconciliation timeouts per controller",
                it.timeouts,
            ),
        ];
        for (metric, help, count) in counters {
            samples.counter(metric, help, labels, count as f64);
        }
        let help = "Length of time per reconciliation per controller";
        samples.histogram("controller_runtime_reconcile_time_seconds", help, labels, &it.took);
        let help = "Maximum number of concurrent reconciles per controller";
        samples.gauge(
            "controller_runtime_max_concurrent_reconciles",
            help,
            labels,
            self.concurrency as f64,
        );
        let help = "Number of currently used workers per controller";
        samples.gauge("controller_runtime_active_workers", help, labels, it.active as f64);
    }
}
