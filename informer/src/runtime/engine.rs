//! `Engine`: starts and stops the components of a manager in order.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{Either, select};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::leader_election::{ElectionOutcome, LeaderElector};
use super::runnable::{Runnable, RunnableGroup};
use crate::cache::{CACHE_SYNC_TIMEOUT, SharedInformerFactory, Whose};
use crate::error::text_of_panic;
use crate::reconcile::BoxError;
use crate::tasks::TaskGroup;
use crate::{Error, spans};

/// Maximum time to wait until aborted tasks have ended.
const ABANDON_TIMEOUT: Duration = Duration::from_secs(1);

/// The components of a manager that the engine uses.
pub(super) struct EngineParts {
    pub(super) factory: SharedInformerFactory,
    /// `None` if leader election is disabled.
    pub(super) elector: Option<LeaderElector>,
    /// Cancelled when this process becomes the leader.
    pub(super) elected: CancellationToken,
}

/// The running components of a manager. If the engine is dropped, all runnables and informers are aborted at their next
/// await points.
pub(super) struct Engine {
    parts: EngineParts,
    adding: mpsc::UnboundedReceiver<Box<dyn Runnable>>,
    happening: mpsc::UnboundedReceiver<Happening>,
    tell: mpsc::UnboundedSender<Happening>,
    stage: Stage,
    /// Runnables that start in a later stage.
    waiting: Vec<Box<dyn Runnable>>,
    base: Crew,
    servers: Crew,
    always: Crew,
    leader: Crew,
    /// Tasks that wait for caches to sync, and that warm up runnables.
    preparing: TaskGroup,
    election: TaskGroup,
    end_election: CancellationToken,
    /// Set if leadership was lost. The manager then drops the remaining runnables instead of stopping them, because
    /// another process may already be the leader.
    pub(super) is_lost: bool,
}

/// Stage that a starting manager has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Servers run; caches that no controller waits for are syncing.
    Servers,
    /// Runnables of the group `Always` run, except for those that read caches. Caches with a lister are syncing.
    Always,
    /// Caches with a lister have synced as well; the process waits to become the leader.
    Standby,
    Leader,
}

impl Stage {
    /// Returns `true` if another process may be the leader after leader election has ended in this stage: leadership
    /// was lost, or the election of the leader panicked, so that the lease is not renewed.
    fn is_lost_with(self, outcome: Option<ElectionOutcome>) -> bool {
        match outcome {
            Some(outcome) => outcome == ElectionOutcome::Lost,
            None => self == Self::Leader,
        }
    }
}

/// An event that the engine reacts to.
enum Happening {
    Failure(Error),
    /// Result of waiting for caches, with the stage that is reached if they have synced.
    Synced(Stage, Result<(), Error>),
    WarmedUp(Box<dyn Runnable>),
    Elected,
    /// Leader election has ended; `None` if it panicked.
    Over(Option<ElectionOutcome>),
}

impl Happening {
    /// Logs the error of a runnable during the shutdown.
    fn log_failure(&self) {
        if let Self::Failure(error) = self {
            tracing::error!(%error, "a runnable failed during the shutdown");
        }
    }
}

/// The runnables of one group that are running.
#[derive(Default)]
struct Crew {
    stop: CancellationToken,
    tasks: TaskGroup,
    /// Names of the runnables that are still running.
    running: Arc<Mutex<BTreeSet<String>>>,
}

impl Crew {
    fn start(&self, runnable: Box<dyn Runnable>, tell: &mpsc::UnboundedSender<Happening>) {
        let (stop, tell, name) = (self.stop.clone(), tell.clone(), runnable.name());
        self.names().insert(name.clone());
        let running = Arc::clone(&self.running);
        self.tasks.spawn(async move {
            if let Err(err) = guarded(&name, async { runnable.run(stop).await }).await {
                let _ = tell.send(Happening::Failure(err));
            }
            names(&running).remove(&name);
        });
    }

    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        names(&self.running)
    }

    async fn stop(&self) {
        self.stop.cancel();
        self.tasks.finished().await;
    }
}

fn names(running: &Mutex<BTreeSet<String>>) -> MutexGuard<'_, BTreeSet<String>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a future of a runnable. Converts a panic to an error, because the manager must not continue without the
/// runnable.
async fn guarded(name: &str, doing: impl Future<Output = Result<(), BoxError>>) -> Result<(), Error> {
    let result = AssertUnwindSafe(doing.instrument(spans::runnable(name)))
        .catch_unwind()
        .await
        .unwrap_or_else(|panic| {
            let text = text_of_panic(&*panic);
            Err(format!("panic: {text}").into())
        });
    result.map_err(|err| Error::failed(name, err))
}

impl Engine {
    pub(super) fn new(parts: EngineParts, adding: mpsc::UnboundedReceiver<Box<dyn Runnable>>) -> Self {
        let (tell, happening) = mpsc::unbounded_channel();
        Self {
            parts,
            adding,
            happening,
            tell,
            stage: Stage::Servers,
            waiting: Vec::new(),
            base: Crew::default(),
            servers: Crew::default(),
            always: Crew::default(),
            leader: Crew::default(),
            preparing: TaskGroup::default(),
            election: TaskGroup::default(),
            end_election: CancellationToken::new(),
            is_lost: false,
        }
    }

    /// Runs the manager. Only returns with an error.
    pub(super) async fn run(&mut self, runnables: Vec<Box<dyn Runnable>>) -> Result<(), Error> {
        for runnable in runnables {
            self.take(runnable);
        }
        self.parts.factory.keep_starting();
        self.wait_for_caches(Whose::Free, Stage::Always);
        self.wait_for_caches(Whose::FreeOrRead, Stage::Standby);
        loop {
            let next = {
                let happening = pin!(self.happening.recv());
                let added = pin!(self.adding.recv());
                match select(happening, added).await {
                    Either::Left((happening, _)) => Either::Left(happening),
                    Either::Right((added, _)) => Either::Right(added),
                }
            };
            match next {
                Either::Left(Some(happening)) => self.react(happening)?,
                Either::Right(Some(added)) => self.take(added),
                // Unreachable: this struct owns one of the senders, and the manager keeps the other one while the
                // engine runs.
                Either::Left(None) | Either::Right(None) => return Ok(()),
            }
        }
    }

    fn react(&mut self, happening: Happening) -> Result<(), Error> {
        match happening {
            Happening::Failure(err) => return Err(err),
            Happening::Synced(_, Err(err)) => return Err(Error::failed("manager", err.into())),
            Happening::Synced(stage, Ok(())) => {
                let is_ready = stage == Stage::Standby;
                self.enter(stage);
                if is_ready {
                    self.stand_for_election();
                }
            }
            Happening::WarmedUp(runnable) if self.stage == Stage::Leader => self.leader.start(runnable, &self.tell),
            Happening::WarmedUp(runnable) => self.waiting.push(runnable),
            Happening::Elected => self.enter(Stage::Leader),
            Happening::Over(outcome) => {
                self.is_lost = self.stage.is_lost_with(outcome);
                return Err(Error::lost_leadership("manager: leader election lost"));
            }
        }
        Ok(())
    }

    /// Advances to a stage, and starts the runnables that were waiting for it. Does nothing if the stage was already
    /// reached.
    fn enter(&mut self, stage: Stage) {
        if stage <= self.stage {
            return;
        }
        self.stage = stage;
        for runnable in std::mem::take(&mut self.waiting) {
            self.take(runnable);
        }
    }

    /// Starts a runnable, warms it up, or keeps it for a later stage, depending on its group and the current stage.
    fn take(&mut self, runnable: Box<dyn Runnable>) {
        let needs = match (runnable.group(), runnable.reads_caches()) {
            (RunnableGroup::Base, _) => return self.base.start(runnable, &self.tell),
            (RunnableGroup::Server, _) => return self.servers.start(runnable, &self.tell),
            (RunnableGroup::Always, false) => Stage::Always,
            (RunnableGroup::Always, true) => Stage::Standby,
            (RunnableGroup::Leader, _) => Stage::Leader,
        };
        match needs {
            Stage::Leader if self.stage == Stage::Leader => self.leader.start(runnable, &self.tell),
            Stage::Leader if self.stage == Stage::Standby => self.warm_up(runnable),
            _ if self.stage >= needs => self.always.start(runnable, &self.tell),
            _ => self.waiting.push(runnable),
        }
    }

    fn warm_up(&self, mut runnable: Box<dyn Runnable>) {
        let (tell, name) = (self.tell.clone(), runnable.name());
        self.preparing.spawn(async move {
            let happening = match guarded(&name, async { runnable.warm_up().await }).await {
                Ok(()) => Happening::WarmedUp(runnable),
                Err(err) => Happening::Failure(err),
            };
            let _ = tell.send(happening);
        });
    }

    fn wait_for_caches(&self, whose: Whose, stage: Stage) {
        let synced = self.parts.factory.synced_within(CACHE_SYNC_TIMEOUT, whose);
        let tell = self.tell.clone();
        self.preparing.spawn(async move {
            let _ = tell.send(Happening::Synced(stage, synced.await));
        });
    }

    /// Starts leader election. If it is disabled, this process becomes the leader immediately.
    fn stand_for_election(&self) {
        let (elected, tell) = (self.parts.elected.clone(), self.tell.clone());
        let Some(elector) = self.parts.elector.clone() else {
            elected.cancel();
            let _ = tell.send(Happening::Elected);
            return;
        };
        let (end, told) = (self.end_election.clone(), tell.clone());
        self.election.spawn(async move {
            let leading = |end: CancellationToken| async move {
                elected.cancel();
                let _ = told.send(Happening::Elected);
                end.cancelled().await;
            };
            let outcome = AssertUnwindSafe(elector.run(end, leading)).catch_unwind().await;
            let _ = tell.send(Happening::Over(outcome.ok()));
        });
    }

    /// Stops all components in order, waiting for each of them. If leadership is lost in the meantime, sets `is_lost`
    /// and returns immediately. A standby no longer becomes the leader. Errors of runnables are logged, because the
    /// manager already has a result.
    pub(super) async fn stop(&mut self) {
        self.adding.close();
        if self.stage < Stage::Leader {
            self.end_election.cancel();
        }
        let Self {
            parts,
            happening,
            stage,
            base,
            servers,
            always,
            leader,
            ..
        } = self;
        let stopping = async {
            always.stop().await;
            leader.stop().await;
            parts.factory.shutdown().await;
            servers.stop().await;
            base.stop().await;
        };
        let losing = async {
            while let Some(happening) = happening.recv().await {
                happening.log_failure();
                if matches!(happening, Happening::Over(outcome) if stage.is_lost_with(outcome)) {
                    return;
                }
            }
            std::future::pending().await
        };
        let is_lost = matches!(select(pin!(stopping), pin!(losing)).await, Either::Right(_));
        if is_lost {
            self.is_lost = true;
        } else {
            self.leave_election().await;
        }
        self.log_failures();
    }

    /// Logs the errors of runnables that the engine has not received yet.
    fn log_failures(&mut self) {
        while let Ok(happening) = self.happening.try_recv() {
            happening.log_failure();
        }
    }

    /// Aborts the runnables that have not stopped, and releases the lease. Returns the names of these runnables; if all
    /// runnables have stopped, names the handlers of informers instead.
    pub(super) async fn abandon(&mut self) -> Vec<String> {
        let mut late = Vec::new();
        let crews = [&self.always, &self.leader, &self.servers, &self.base];
        for crew in crews {
            late.extend(std::mem::take(&mut *crew.names()));
            // Abort all tasks before waiting, because one task may block the wait.
            crew.tasks.abort();
        }
        if late.is_empty() {
            late.push("handlers of informers".to_owned());
        }
        let ending = async {
            for crew in crews {
                crew.tasks.finished().await;
            }
        };
        // A task that blocks its thread cannot be aborted. Wait only briefly for such a task before releasing the
        // lease.
        let _ = timeout(ABANDON_TIMEOUT, ending).await;
        self.leave_election().await;
        self.log_failures();
        late
    }

    /// Ends leader election, which releases the lease if this process holds it. Takes at most the renew deadline.
    async fn leave_election(&mut self) {
        self.end_election.cancel();
        self.election.finished().await;
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.parts.factory.abandon();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as blocking;

    use futures::FutureExt;
    use kube::Client;
    use rstest::rstest;

    use super::super::runnable::{run_always, run_when_leader};
    use super::*;

    /// Sends a message when it is dropped.
    struct OnDrop(blocking::Sender<()>);

    impl Drop for OnDrop {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }

    /// Returns an engine without components. Its server never responds.
    fn engine() -> Engine {
        let never = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, kube::Error>>()
        });
        let (_adding, added) = mpsc::unbounded_channel();
        let parts = EngineParts {
            factory: SharedInformerFactory::new(Client::new(never, "default")),
            elector: None,
            elected: CancellationToken::new(),
        };
        Engine::new(parts, added)
    }

    #[rstest]
    #[case::loss(Some(ElectionOutcome::Lost), Stage::Leader, true)]
    #[case::panic_of_the_leader(None, Stage::Leader, true)]
    #[case::panic_of_a_standby(None, Stage::Standby, false)]
    #[tokio::test]
    async fn end_of_the_election_is_a_loss_if_another_process_may_lead(
        #[case] outcome: Option<ElectionOutcome>,
        #[case] stage: Stage,
        #[case] is_lost: bool,
        #[values(false, true)] is_stopping: bool,
    ) {
        let mut engine = engine();
        engine.stage = stage;
        if is_stopping {
            let stops = run_always("stops", |stop| async move {
                stop.cancelled().await;
                Ok(())
            });
            engine.always.start(Box::new(stops), &engine.tell);
            assert!(engine.tell.send(Happening::Over(outcome)).is_ok());
            engine.stop().await;
        } else {
            engine
                .react(Happening::Over(outcome))
                .expect_err("the election has ended");
        }
        assert_eq!(engine.is_lost, is_lost);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn blocked_runnable_does_not_delay_aborting_the_leader_group() {
        let mut engine = engine();
        let (unblock, blocked) = blocking::channel::<()>();
        let (sender, dropped) = blocking::channel();
        let (started, starts) = blocking::channel();
        let starting = started.clone();
        let blocks = run_always("blocks", move |_| {
            let _ = starting.send(());
            let _ = blocked.recv();
            futures::future::ready(Ok(())).boxed()
        });
        let leads = run_when_leader("leads", move |_| async move {
            let _dropped = OnDrop(sender);
            let _ = started.send(());
            std::future::pending().await
        });
        engine.always.start(Box::new(blocks), &engine.tell);
        engine.leader.start(Box::new(leads), &engine.tell);
        assert_eq!(starts.iter().take(2).count(), 2);
        assert_eq!(engine.abandon().await, ["blocks", "leads"]);
        assert!(dropped.try_recv().is_ok(), "the task of the leader has ended");
        drop(unblock);
    }
}
