//! Settings and tasks of a whole run: delays of the server's workers, wrong clocks of clients, and periodic checks.

use std::sync::Arc;
use std::time::Duration;

use fake_apiserver::{Seen, Verb, Verdict};
use tokio::time::{Instant, sleep};

use super::harness::Harness;
use crate::explore::gate::name_in;
use crate::explore::plans::{OnRequest, OnRun};
use crate::explore::trace::{Outcome, Request, Step, What};
use crate::lock::lock;

/// Number of messages by which each request of a worker raises the limit for hot loops. If the messages never end,
/// `settle` fails.
const GIVES_CAUSE: u64 = 20;

/// Minimum interval between checks that are made because time passes.
const LOOK: Duration = Duration::from_secs(1);

impl Harness {
    /// Injects the delays of the workers. A further call replaces them, so that faults that were injected in the
    /// meantime precede the delays.
    pub(crate) fn slow_workers(self: &Arc<Self>) {
        if !self.gate.server.has_workers() {
            return;
        }
        let harness = Arc::downgrade(self);
        let late = move |seen: &Seen<'_>| match (seen.worker, harness.upgrade()) {
            (Some(worker), Some(harness)) => Verdict::Delay(harness.of_worker(worker, seen)),
            (None, _) | (_, None) => Verdict::Pass,
        };
        let mut guard = lock(&self.workers);
        // Remove the previous fault first: with both, requests would be counted twice.
        *guard = None;
        *guard = Some(self.gate.server.inject(late));
    }

    /// Evaluates the `always` and `sometimes` checks after each recorded request or event, because the next request of
    /// a client may be much later than a write of a worker.
    pub(crate) fn watch_workers(self: &Arc<Self>) {
        if !self.gate.server.has_workers() || !self.has_checks() {
            return;
        }
        let (server, harness) = (self.gate.server.clone(), Arc::downgrade(self));
        // The task ends with the runtime of the run.
        tokio::spawn(async move {
            let mut total = 0;
            loop {
                server.journal().reached(total + 1).await;
                total = server.journal().total();
                let Some(harness) = harness.upgrade() else { return };
                harness.check();
            }
        });
    }

    /// Evaluates the `always` and `sometimes` checks while time passes: every second at first, later at intervals of 1
    /// % of the elapsed time.
    pub(crate) fn watch_time(self: &Arc<Self>) {
        if !self.has_checks() {
            return;
        }
        let harness = Arc::downgrade(self);
        // The task ends with the runtime of the run.
        tokio::spawn(async move {
            let started = Instant::now();
            loop {
                sleep((started.elapsed() / 100).max(LOOK)).await;
                let Some(harness) = harness.upgrade() else { return };
                harness.check_time();
            }
        });
    }

    /// Registers a request of a worker, and returns the time by which it is delayed.
    fn of_worker(&self, worker: &str, seen: &Seen<'_>) -> Duration {
        let info = seen.info;
        let truth = self.gate.server.resource_version();
        let at = self.gate.started.elapsed();
        let mut resource = info.resource.to_string();
        for (mark, part) in [('.', &*info.group), ('/', &*info.subresource)] {
            if !part.is_empty() {
                resource.push(mark);
                resource.push_str(part);
            }
        }
        let object = format!("{}/{}", info.namespace, info.name);
        let creates = (info.verb == Verb::Create).then(|| name_in(seen.body)).flatten();
        let mut state = self.gate.state();
        state.allowed += GIVES_CAUSE;
        let stem = format!("{worker}:{}:{resource}:{object}", info.verb.as_str());
        let (point, actions) = self.gate.actions(&mut state, stem);
        state.trace.push(Step {
            at,
            client: worker.into(),
            life: 1,
            what: What::Request(Request {
                object,
                made_from: creates.as_ref().and_then(|it| it.strip_suffix('*')).map(str::to_owned),
                creates,
                outcome: Outcome::Unseen,
                ..Request::new(info.verb, &resource)
            }),
            view: truth,
            truth,
            point,
        });
        drop(state);
        let delays = actions.iter().filter_map(|it| {
            let OnRequest::Wait(time) = it.effects().request? else {
                return None;
            };
            Some(time)
        });
        let late = delays.max().unwrap_or_default();
        if !late.is_zero() {
            self.gate.lasts(late);
        }
        self.timing.worker_takes + late
    }

    /// Sets the clock of a client according to the plan.
    pub(crate) fn skew_clock(&self, client: &str, name: &str) {
        for fault in &self.gate.plan.faults {
            if let Some(OnRun::Skew(ahead)) = fault.action.effects().run
                && fault.point == client
            {
                self.gate.server.skew_clock(name, ahead);
            }
        }
    }
}
