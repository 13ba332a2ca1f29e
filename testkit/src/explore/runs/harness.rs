//! `Harness`: applies the decisions of a run's gate to the cluster of the run.

use std::collections::BTreeMap;
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use fake_apiserver::FaultGuard;
use futures::FutureExt;
use tokio::time::sleep;

use super::config::{Check, Config, Inquiry, Mode, MustHold};
use super::timing::Timing;
use super::wait::Wait;
use crate::explore::gate::{CallTicket, Gate, Life};
use crate::explore::oracles::Oracle;
use crate::explore::outcomes::{ALWAYS, Milestone, Reference};
use crate::explore::plans::{OnAnswer, OnCall, escaped};
use crate::hooks::{AfterCall, Restart, Unreachable};
use crate::lock::lock;
use crate::test_cluster::TestCluster;
use crate::work::Work;

/// Time until a call to an unreachable system fails. Without it, a loop that repeats the call without a pause would
/// never end, because virtual time only passes while all tasks wait.
const UNREACHABLE: Duration = Duration::from_millis(100);

/// Time for the delivery of a signal to a process.
const SIGNAL_DELIVERY: Duration = Duration::from_millis(100);

/// The gate of a run, and the parts of its cluster to which decisions are applied.
pub(crate) struct Harness {
    pub(crate) gate: Gate,
    /// Action at each return of `settle`.
    pub(crate) mode: Mode,
    /// Set if the run may fail early because of a wrong state; see `hasty.rs`.
    pub(crate) is_hasty: bool,
    /// Set if the state after each step is compared with the reference.
    pub(crate) compares: bool,
    /// Time within which the state after a step must become correct.
    pub(crate) within: Duration,
    pub(crate) timing: Timing,
    checks: Arc<[Check]>,
    inquiries: Arc<[Inquiry]>,
    /// Determines which changes count as work.
    pub(crate) work: Work,
    /// State of the reference run at each settled step; empty in references.
    pub(crate) milestones: Arc<[Milestone]>,
    cluster: OnceLock<Weak<TestCluster>>,
    pub(crate) controllers: Mutex<BTreeMap<Arc<str>, Arc<dyn Restart>>>,
    /// Guard of the fault that slows down the server's workers.
    pub(crate) workers: Mutex<Option<FaultGuard>>,
    wait: Mutex<Wait>,
}

impl Harness {
    pub(crate) fn new(gate: Gate, config: &Config, reference: Option<&Reference>, mode: Mode) -> Self {
        let wait = Wait::at(gate.base);
        Self {
            gate,
            is_hasty: false,
            compares: config.oracles.has(Oracle::EndState),
            checks: Arc::clone(&config.checks),
            inquiries: Arc::clone(&config.inquiries),
            work: config.work.clone(),
            milestones: reference.map(|it| Arc::clone(&it.milestones)).unwrap_or_default(),
            mode,
            within: config.within,
            timing: config.timing,
            cluster: OnceLock::new(),
            controllers: Mutex::default(),
            workers: Mutex::default(),
            wait: Mutex::new(wait),
        }
    }

    /// Locks the state of the scenario's current wait.
    pub(super) fn present_wait(&self) -> MutexGuard<'_, Wait> {
        lock(&self.wait)
    }

    /// Sets the cluster of the run, on which the checks are evaluated.
    pub(crate) fn watch_over(&self, cluster: &Arc<TestCluster>) {
        // Cannot fail, because a run has a single cluster.
        let _ = self.cluster.set(Arc::downgrade(cluster));
    }

    /// Returns the cluster of the run while it exists.
    pub(crate) fn cluster(&self) -> Option<Arc<TestCluster>> {
        self.cluster.get().and_then(Weak::upgrade)
    }

    /// Returns the names of the controllers that can be restarted.
    pub(crate) fn controllers(&self) -> Vec<Arc<str>> {
        lock(&self.controllers).keys().cloned().collect()
    }

    /// Kills a controller, and restarts it after the time `down`. Responses to its open requests are never delivered.
    pub(crate) fn crash(&self, client: &Arc<str>, down: Duration) {
        self.gate.lives(client).iter().for_each(|life| life.end());
        self.gate.note(client, self.gate.life_of(client), "crash".to_owned());
        let Some(controller) = lock(&self.controllers).get(client).cloned() else {
            return;
        };
        self.gate.lasts(down);
        controller.crash();
        tokio::spawn(async move {
            sleep(down).await;
            controller.restart();
        });
    }

    /// Stops the process of a controller (`SIGSTOP`), and continues it after some time (`SIGCONT`).
    pub(crate) fn freeze(&self, life: &Life, time: Duration) {
        self.gate.note(&life.client, life.number, "stop (SIGSTOP)".to_owned());
        let Some(controller) = lock(&self.controllers).get(&life.client).cloned() else {
            return;
        };
        self.gate.lasts(time);
        controller.freeze();
        tokio::spawn(async move {
            sleep(time).await;
            controller.thaw();
        });
    }

    /// Kills a controller and restarts it immediately.
    pub(crate) fn restart(&self, client: &str) {
        let controller = lock(&self.controllers).get(client).cloned();
        if let Some(controller) = controller {
            self.gate.note(&client.into(), 0, "restart".to_owned());
            let lives = self.gate.lives(client);
            controller.restart();
            // A process that is stopped may still send requests.
            if !self.timing.is_real {
                lives.iter().for_each(|life| life.end());
            }
        }
    }

    /// Stops the process of a controller by its stop signal, and starts it again when it has exited. Returns after the
    /// process has received the signal. The fault lasts for `time`.
    pub(crate) async fn stop(&self, client: &Arc<str>, time: Duration) {
        self.gate.lasts(time);
        self.restart(client);
        sleep(SIGNAL_DELIVERY).await;
    }

    pub(crate) fn has_checks(&self) -> bool {
        !self.checks.is_empty()
    }

    /// Evaluates the `always` and `sometimes` checks because time has passed, even if nothing has changed.
    pub(crate) fn check_time(&self) {
        self.gate.state().checked_at = 0;
        self.check();
    }

    /// Evaluates the `always` and `sometimes` checks if something has changed since the last evaluation.
    pub(crate) fn check(&self) {
        let revision = self.gate.server.resource_version();
        {
            let mut state = self.gate.state();
            if self.checks.is_empty() || state.checked_at == revision {
                return;
            }
            state.checked_at = revision;
        }
        let Some(cluster) = self.cluster() else { return };
        for (index, check) in self.checks.iter().enumerate() {
            let is_known = self.gate.state().held.contains(&index);
            match (check.must_always, check.look(&cluster)) {
                (true, Err(why)) => {
                    let what = format!("{:?} does not hold: {why}", check.name);
                    self.gate.violation(check.oracle.unwrap_or(ALWAYS), what);
                }
                (false, Ok(())) if !is_known => {
                    self.gate.state().held.insert(index);
                }
                (true | false, _) => {}
            }
        }
    }

    /// Evaluates the `always` and `sometimes` inquiries, unless the run has already failed.
    pub(crate) async fn inquire(&self) {
        let Some(cluster) = self.cluster() else { return };
        for (index, inquiry) in self.inquiries.iter().enumerate() {
            let index = self.checks.len() + index;
            let (has_failed, is_known) = {
                let state = self.gate.state();
                (!state.violations.is_empty(), state.held.contains(&index))
            };
            match inquiry.must_hold {
                MustHold::Always if !has_failed => {
                    if let Err(why) = (inquiry.look)(&cluster).await {
                        let what = format!("{:?} does not hold: {why}", inquiry.name);
                        self.gate.violation(inquiry.oracle, what);
                    }
                }
                MustHold::Sometimes if !has_failed && !is_known => {
                    if (inquiry.look)(&cluster).await.is_ok() {
                        self.gate.state().held.insert(index);
                    }
                }
                MustHold::Always | MustHold::Sometimes | MustHold::Eventually => {}
            }
        }
    }

    /// Applies faults before a call of a controller to a system outside of the API.
    pub(crate) async fn begin_call<'a>(
        self: Arc<Self>,
        client: &'a str,
        name: &'a str,
        object: &'a str,
    ) -> Result<AfterCall<'a>, Unreachable> {
        let (client, name): (Arc<str>, _) = (escaped(client).into(), escaped(name));
        let Some(ticket) = self.gate.call(&client, &name, object) else {
            return pending().await;
        };
        for effect in &ticket.before {
            match *effect {
                OnCall::Crash(down) => self.crash_client(&client, down).await,
                OnCall::Wait(time) => {
                    self.gate.lasts(time);
                    sleep(time).await;
                }
                OnCall::Outage(time) => self.gate.disconnect(&client, &name, time),
                OnCall::Fail => {
                    sleep(UNREACHABLE).await;
                    return Err(Unreachable);
                }
            }
        }
        if self.gate.life_of(&client) != ticket.life {
            // The controller has been killed in the meantime.
            pending::<()>().await;
        }
        Ok(self.end_call(client, ticket).boxed())
    }

    /// Applies faults after a call of a controller to a system outside of the API.
    async fn end_call(self: Arc<Self>, client: Arc<str>, ticket: CallTicket) -> Result<(), Unreachable> {
        self.gate.called(ticket.index);
        self.check_time();
        for effect in ticket.after {
            match effect {
                OnAnswer::Crash(down) => self.crash_client(&client, down).await,
                OnAnswer::Break(time) => {
                    self.wait(time).await;
                    return Err(Unreachable);
                }
                OnAnswer::Wait(time) => self.wait(time).await,
                OnAnswer::Stop(time) => self.stop(&client, time).await,
            }
        }
        Ok(())
    }

    /// Kills the controller `client` if it can be restarted, and never returns.
    async fn crash_client(&self, client: &Arc<str>, down: Duration) {
        self.crash(client, down);
        pending::<()>().await;
    }

    /// Registers a fault that lasts for `time`, and waits until it ends.
    pub(crate) async fn wait(&self, time: Duration) {
        if !time.is_zero() {
            self.gate.lasts(time);
            sleep(time).await;
        }
    }
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness")
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}
