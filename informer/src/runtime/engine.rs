//! `Engine`: what a manager runs, in the order in which it starts and stops.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use futures::future::{Either, select};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::leader_election::Outcome;
use super::manager::Manager;
use super::runnable::{Group, Runnable};
use crate::Error;
use crate::error::text_of_panic;
use crate::reconcile::BoxError;
use crate::tasks::TaskGroup;

/// What runs. When it is dropped, everything ends where it waits.
pub(super) struct Engine<'a> {
    manager: &'a Manager,
    adding: mpsc::UnboundedReceiver<Box<dyn Runnable>>,
    failed: mpsc::UnboundedReceiver<Error>,
    failures: mpsc::UnboundedSender<Error>,
    servers: Crew,
    always: Crew,
    leader: Crew,
    /// What waits for this process to lead.
    standby: Vec<Box<dyn Runnable>>,
    election: TaskGroup,
    end_election: CancellationToken,
    /// The lease was lost: whatever still runs is to be dropped where it waits.
    pub(super) is_lost: bool,
}

/// Runnables of one group.
#[derive(Default)]
struct Crew {
    stop: CancellationToken,
    tasks: TaskGroup,
}

impl Crew {
    fn start(&self, runnable: Box<dyn Runnable>, failures: &mpsc::UnboundedSender<Error>) {
        let (stop, failures, name) = (self.stop.clone(), failures.clone(), runnable.name());
        self.tasks.spawn(async move {
            // What panics has failed: a manager must not go on without it as if nothing had happened.
            let run = async { runnable.run(stop).await };
            let result = AssertUnwindSafe(run).catch_unwind().await.unwrap_or_else(|panic| {
                let text = text_of_panic(&*panic);
                Err(format!("panic: {text}").into())
            });
            if let Err(err) = result {
                let _ = failures.send(failed(&name, &err));
            }
        });
    }

    async fn stop(&self) {
        self.stop.cancel();
        self.tasks.finished().await;
    }
}

fn failed(name: &str, err: &BoxError) -> Error {
    Error::refused(format!("{name}: {err}"))
}

impl<'a> Engine<'a> {
    pub(super) fn new(manager: &'a Manager, adding: mpsc::UnboundedReceiver<Box<dyn Runnable>>) -> Self {
        let (failures, failed) = mpsc::unbounded_channel();
        Self {
            manager,
            adding,
            failed,
            failures,
            servers: Crew::default(),
            always: Crew::default(),
            leader: Crew::default(),
            standby: Vec::new(),
            election: TaskGroup::default(),
            end_election: CancellationToken::new(),
            is_lost: false,
        }
    }

    /// Returns at the first failure.
    pub(super) async fn run(&mut self, runnables: Vec<Box<dyn Runnable>>) -> Result<(), Error> {
        let inner = &self.manager.0;
        let mut always = Vec::new();
        for runnable in runnables {
            match runnable.group() {
                Group::Server => self.servers.start(runnable, &self.failures),
                Group::Always => always.push(runnable),
                Group::Leader => self.standby.push(runnable),
            }
        }
        inner.factory.start();
        inner.factory.wait_for_cache_sync().await?;
        for runnable in always {
            self.always.start(runnable, &self.failures);
        }
        for runnable in &mut self.standby {
            let name = runnable.name();
            runnable.warm_up().await.map_err(|err| failed(&name, &err))?;
        }
        let mut lost = self.stand_for_election();
        let mut is_leader = false;
        loop {
            let elected = inner.elected.clone();
            let event = {
                let added = std::pin::pin!(self.adding.recv());
                let failure = std::pin::pin!(self.failed.recv());
                let lost = std::pin::pin!(lost.recv());
                let elected = std::pin::pin!(async move {
                    match is_leader {
                        false => elected.cancelled().await,
                        true => futures::future::pending().await,
                    }
                });
                match select(select(failure, lost), select(elected, added)).await {
                    Either::Left((Either::Left((failure, _)), _)) => Happening::Failure(failure),
                    Either::Left((Either::Right((outcome, _)), _)) => Happening::Lost(outcome),
                    Either::Right((Either::Left(((), _)), _)) => Happening::Elected,
                    Either::Right((Either::Right((added, _)), _)) => Happening::Added(added),
                }
            };
            match event {
                Happening::Failure(Some(err)) => return Err(err),
                Happening::Lost(outcome) => {
                    self.is_lost = outcome == Some(Outcome::Lost);
                    return Err(Error::refused("manager: leader election lost"));
                }
                Happening::Elected => {
                    is_leader = true;
                    for runnable in self.standby.drain(..) {
                        self.leader.start(runnable, &self.failures);
                    }
                }
                Happening::Added(Some(runnable)) => {
                    inner.factory.start();
                    match runnable.group() {
                        Group::Server => self.servers.start(runnable, &self.failures),
                        Group::Always => self.always.start(runnable, &self.failures),
                        Group::Leader if is_leader => self.leader.start(runnable, &self.failures),
                        Group::Leader => self.standby.push(runnable),
                    }
                }
                // We hold both senders: this does not happen.
                Happening::Failure(None) | Happening::Added(None) => return Ok(()),
            }
        }
    }

    /// Begins the election. What is received says that it is over.
    fn stand_for_election(&self) -> mpsc::UnboundedReceiver<Outcome> {
        let (over, lost) = mpsc::unbounded_channel();
        let elected = self.manager.0.elected.clone();
        let end = self.end_election.clone();
        let elector = self.manager.0.elector.clone();
        self.election.spawn(async move {
            let Some(elector) = elector else {
                elected.cancel();
                end.cancelled().await;
                return;
            };
            let leading = |end: CancellationToken| async move {
                elected.cancel();
                end.cancelled().await;
            };
            let outcome = elector.run(end, leading).await;
            let _ = over.send(outcome);
        });
        // Without an elector the channel would close at once, which is no loss: keep it open.
        if self.manager.0.elector.is_none() {
            let (open, never) = mpsc::unbounded_channel();
            let end = self.end_election.clone();
            self.election.spawn(async move {
                end.cancelled().await;
                drop(open);
            });
            return never;
        }
        lost
    }

    /// Stops everything in order, and waits for it.
    pub(super) async fn stop(&mut self) {
        self.adding.close();
        self.always.stop().await;
        self.leader.stop().await;
        self.manager.0.factory.shutdown().await;
        self.servers.stop().await;
        self.end_election.cancel();
        self.election.finished().await;
    }
}

/// What the manager waits for.
enum Happening {
    Failure(Option<Error>),
    Lost(Option<Outcome>),
    Elected,
    Added(Option<Box<dyn Runnable>>),
}
