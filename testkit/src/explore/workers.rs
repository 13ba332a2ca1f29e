//! Conditions that hold from the beginning of a run: slow workers of the server, and wrong clocks.

use std::sync::Arc;
use std::time::Duration;

use fake_apiserver::{Seen, Verb, Verdict};
use tokio::time::{Instant, sleep};

use super::gate::Gate;
use super::plan::Action;
use super::timeline::name_in;
use super::trace::{Outcome, Request, Step, What};
use crate::test_cluster::lock;

/// Time that a worker takes for a request, as a busy kube-controller-manager does. With none, a controller with an old
/// view and a worker that undoes its writes would loop for ever at one virtual instant.
const TAKES: Duration = Duration::from_millis(100);

/// Messages for which a request of a worker gives cause, and which therefore are no hot loop. If they never end, then
/// `settle` says so.
const GIVES_CAUSE: u64 = 20;

/// First interval between checks while nothing changes.
const LOOK: Duration = Duration::from_secs(1);

impl Gate {
    /// Sees to it that the workers take their time. Called anew it lets the faults that were injected meanwhile go
    /// first.
    pub(crate) fn slow_workers(self: &Arc<Self>) {
        if !self.server.has_workers() {
            return;
        }
        let gate = Arc::downgrade(self);
        let late = move |seen: &Seen<'_>| match (seen.worker, gate.upgrade()) {
            (Some(worker), Some(gate)) => Verdict::Delay(gate.of_worker(worker, seen)),
            (None, _) | (_, None) => Verdict::Pass,
        };
        let mut guard = lock(&self.workers);
        // The old one goes first: both at once would count twice.
        *guard = None;
        *guard = Some(self.server.inject(late));
    }

    /// Runs the `always` checks after each request of a worker: the next request comes later.
    pub(crate) fn watch_workers(self: &Arc<Self>) {
        if !self.server.has_workers() || !self.has_checks() {
            return;
        }
        let (server, gate) = (self.server.clone(), Arc::downgrade(self));
        // The task ends with the runtime of the run.
        tokio::spawn(async move {
            let mut total = 0;
            loop {
                server.journal().reached(total + 1).await;
                total = server.journal().total();
                let Some(gate) = gate.upgrade() else { return };
                gate.check();
            }
        });
    }

    /// Runs the `always` checks as time passes: each second at first, then each time a hundredth of the time so far has
    /// passed.
    pub(crate) fn watch_time(self: &Arc<Self>) {
        if !self.has_checks() {
            return;
        }
        let gate = Arc::downgrade(self);
        // The task ends with the runtime of the run.
        tokio::spawn(async move {
            let started = Instant::now();
            loop {
                sleep((started.elapsed() / 100).max(LOOK)).await;
                let Some(gate) = gate.upgrade() else { return };
                gate.check_time();
            }
        });
    }

    /// Registers a request of a worker; returns how long it takes to come.
    fn of_worker(&self, worker: &str, seen: &Seen<'_>) -> Duration {
        let info = seen.info;
        let truth = self.server.resource_version();
        let at = self.started.elapsed();
        let mut resource = info.resource.to_string();
        for (mark, part) in [('.', &*info.group), ('/', &*info.subresource)] {
            if !part.is_empty() {
                resource.push(mark);
                resource.push_str(part);
            }
        }
        let object = format!("{}/{}", info.namespace, info.name);
        let creates = (info.verb == Verb::Create).then(|| name_in(seen.body)).flatten();
        let mut state = self.state();
        state.allowed += GIVES_CAUSE;
        let stem = format!("{worker}:{}:{resource}:{object}", info.verb.as_str());
        let (point, actions) = self.actions(&mut state, stem);
        state.trace.push(Step {
            at,
            client: worker.into(),
            life: 1,
            what: What::Request(Request {
                verb: info.verb,
                resource,
                object,
                made_from: creates.as_ref().and_then(|it| it.strip_suffix('*')).map(str::to_owned),
                creates,
                reached: None,
                saw: None,
                is_of_another: false,
                may_conflict: false,
                may_be_stale: false,
                may_expire: false,
                streams_list: false,
                outcome: Outcome::Unseen,
            }),
            view: truth,
            truth,
            point,
        });
        drop(state);
        let delays = actions.into_iter().filter_map(|action| match action {
            Action::Delay(time) => Some(time),
            _ => None,
        });
        let late = delays.max().unwrap_or_default();
        if !late.is_zero() {
            self.lasts(late);
        }
        TAKES + late
    }

    /// Sets the clock of a client as the plan says.
    pub(crate) fn skew_clock(&self, client: &str, name: &str) {
        for fault in &self.plan.faults {
            if let Action::Skew(ahead) = fault.action
                && fault.point == client
            {
                self.server.skew_clock(name, ahead);
            }
        }
    }
}
