//! `Stats`: metrics of a webhook, with controller-runtime's metric names.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::metrics::{Collect, Histogram, Samples};

/// Default histogram bounds of Prometheus, in seconds.
const BOUNDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Status code under which a request is counted if the client disconnects before the response, as in nginx.
const GIVEN_UP: u16 = 499;

#[derive(Debug)]
pub(super) struct Stats {
    path: String,
    figures: Mutex<Figures>,
}

#[derive(Debug)]
struct Figures {
    in_flight: u64,
    panics: u64,
    by_code: BTreeMap<u16, u64>,
    took: Histogram,
}

impl Stats {
    pub(super) fn new(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            figures: Mutex::new(Figures {
                in_flight: 0,
                panics: 0,
                by_code: BTreeMap::new(),
                took: Histogram::new(BOUNDS),
            }),
        }
    }

    /// Counts a request as in progress until the returned guard is dropped.
    pub(super) fn started(self: &Arc<Self>) -> InFlight {
        self.with(|it| it.in_flight += 1);
        InFlight {
            stats: Arc::clone(self),
            began: Instant::now(),
            code: GIVEN_UP,
        }
    }

    pub(super) fn panicked(&self) {
        self.with(|it| it.panics += 1);
    }

    fn with(&self, count: impl FnOnce(&mut Figures)) {
        count(&mut self.figures.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A request in progress. If it is dropped without a response, it is counted with the code [`GIVEN_UP`], for example
/// because the webhook's `timeoutSeconds` have expired.
pub(super) struct InFlight {
    stats: Arc<Stats>,
    began: Instant,
    code: u16,
}

impl InFlight {
    pub(super) fn answered(mut self, code: u16) {
        self.code = code;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.stats.with(|it| {
            it.in_flight -= 1;
            *it.by_code.entry(self.code).or_default() += 1;
            it.took.observe_time(self.began.elapsed());
        });
    }
}

impl Collect for Stats {
    fn collect(&self, samples: &mut Samples) {
        let it = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        let labels = &[("webhook", self.path.as_str())];
        for (code, count) in &it.by_code {
            let code = code.to_string();
            let labels = &[("code", code.as_str()), ("webhook", self.path.as_str())];
            let help = "Total number of admission requests by HTTP status code.";
            samples.counter("controller_runtime_webhook_requests_total", help, labels, *count as f64);
        }
        let help = "Histogram of the latency of processing admission requests";
        samples.histogram("controller_runtime_webhook_latency_seconds", help, labels, &it.took);
        let help = "Current number of admission requests being served.";
        samples.gauge(
            "controller_runtime_webhook_requests_in_flight",
            help,
            labels,
            it.in_flight as f64,
        );
        let help = "Total number of webhook panics";
        samples.counter(
            "controller_runtime_webhook_panics_total",
            help,
            labels,
            it.panics as f64,
        );
    }
}
