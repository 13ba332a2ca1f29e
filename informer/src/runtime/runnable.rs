//! `Runnable`: a part of a process that a manager starts and stops.

use std::fmt;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::reconcile::BoxError;

/// Group of a runnable, which decides when it runs. Groups start in this order; they stop in the order `Always`,
/// `Leader`, `Server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Before the caches and after them: what answers from outside.
    Server,
    /// As long as the manager runs. It begins when the caches have synced that no controller watches; to wait for all
    /// that are read, see [`Runnable::reads_caches`].
    Always,
    /// As long as this process leads.
    Leader,
}

/// A part of a process that a [`Manager`](super::Manager) starts and stops.
pub trait Runnable: Send + 'static {
    /// Its name in messages; no two of one manager may have one name.
    fn name(&self) -> String;

    /// Returns the group. Default: `Leader`.
    fn group(&self) -> Group {
        Group::Leader
    }

    /// Returns `true` if it starts only when every cache with a [`Lister`](crate::cache::Lister) has synced. Default:
    /// yes, unless it always runs: then it may install what a controller waits for.
    fn reads_caches(&self) -> bool {
        self.group() == Group::Leader
    }

    /// Prepares the runnable before this process leads. Default: nothing. It is awaited before `run` begins, and
    /// nothing else waits for it.
    fn warm_up(&mut self) -> BoxFuture<'_, Result<(), BoxError>> {
        futures::future::ready(Ok(())).boxed()
    }

    /// Runs until it has ended, or `stop` is cancelled. An error stops the manager.
    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>>;
}

/// A function as a [`Runnable`]; see [`run_when_leader`] and [`run_always`].
pub struct Task {
    name: String,
    group: Group,
    run: Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> + Send>,
}

/// Runs a function as long as this process leads.
pub fn run_when_leader<F, Fut>(name: &str, run: F) -> Task
where
    F: FnOnce(CancellationToken) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    Task {
        name: name.to_owned(),
        group: Group::Leader,
        run: Box::new(move |stop| run(stop).boxed()),
    }
}

/// Runs a function as long as the manager runs.
pub fn run_always<F, Fut>(name: &str, run: F) -> Task
where
    F: FnOnce(CancellationToken) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    Task {
        group: Group::Always,
        ..run_when_leader(name, run)
    }
}

impl Runnable for Task {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn group(&self) -> Group {
        self.group
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, Result<(), BoxError>> {
        (self.run)(stop)
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("name", &self.name)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}
